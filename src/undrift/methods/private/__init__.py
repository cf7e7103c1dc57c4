"""The axis `private`: which entries of the vector never leave a client."""

from __future__ import annotations

from undrift.methods.private.entries import Head as head
from undrift.methods.private.entries import Named as named
from undrift.methods.private.entries import Norms as norms
from undrift.methods.private.lora import FedSALoRA as fedsalora
from undrift.methods.private.lora import FFALoRA as ffalora

__all__ = ["fedsalora", "ffalora", "head", "named", "norms"]
