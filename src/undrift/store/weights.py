"""Files of weights: a state dict as safetensors, in bytes that depend on its content alone."""

from __future__ import annotations

import json
from collections.abc import Mapping

import safetensors.torch
import torch


def weights_file(state: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> bytes:
    """The content of a .safetensors file. The library writes the metadata in another order each time, so that equal models
    would have unequal checksums: here they are sorted. Every tensor is copied, because the library refuses tensors that
    share memory, as tied weights do."""
    data = safetensors.torch.save({name: value.clone() for name, value in state.items()}, metadata=dict(metadata))
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + length :]
