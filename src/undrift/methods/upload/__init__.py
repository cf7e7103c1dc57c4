"""The axis `upload`: what happens to an update between training and the wire, and to the sum before it is used."""

from __future__ import annotations

from undrift.methods.upload.dp import ClientDP as dp
from undrift.methods.upload.quantize import Quantize as quantize
from undrift.methods.upload.topk import TopK as topk

__all__ = ["dp", "quantize", "topk"]
