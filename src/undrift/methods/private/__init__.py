"""The axis `private`: which entries of the vector never leave a client."""

from __future__ import annotations

from undrift.methods.private.entries import Head as head
from undrift.methods.private.entries import Named as named
from undrift.methods.private.entries import Norms as norms

__all__ = ["head", "named", "norms"]
