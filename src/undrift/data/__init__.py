"""Data sets by name or by path: `load("fashion-mnist")`, `load("my.npz")`, `load("folder/of/images")`.

Canonical public formats only, never by unpickling; decoded arrays are mapped files that runs and workers share.
"""

from __future__ import annotations

from undrift.data.catalogue import about as about
from undrift.data.catalogue import available as available
from undrift.data.catalogue import load, names
from undrift.data.dataset import DataSet

__all__ = ["DataSet", "load", "names"]
