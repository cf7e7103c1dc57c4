"""Data sets by name or by path: `load("fashion-mnist")`, `load("my.npz")`, `load("folder/of/images")`.
`table(frame, …)` and `hugging_face(dataset, …)` take data that are already in Python.

Only canonical public formats are read, and nothing is unpickled. Decoded arrays are mapped files that runs and workers
share.
"""

from __future__ import annotations

from undrift.data.catalogue import about as about
from undrift.data.catalogue import available as available
from undrift.data.catalogue import load, names
from undrift.data.dataset import DataSet
from undrift.data.hf import hugging_face
from undrift.data.tables import table

__all__ = ["DataSet", "hugging_face", "load", "names", "table"]
