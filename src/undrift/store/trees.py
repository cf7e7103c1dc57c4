"""Trees as bytes: safetensors for the tensors, JSON with sorted keys for the rest. Nothing is pickled, so a file of
unknown origin cannot run code. Equal trees give equal bytes, whatever the hash seed."""

from __future__ import annotations

import json
from typing import Any

import safetensors.torch
import torch

from undrift.contract.context import Tree


def dump(tree: Tree) -> bytes:
    """A tree of dicts, lists, tensors, numbers, text and None as bytes."""
    tensors: dict[str, torch.Tensor] = {}
    names: dict[int, str] = {}

    def skeleton(node: Tree) -> Any:
        if isinstance(node, torch.Tensor):
            if id(node) not in names:  # a tensor that occurs twice is written once
                names[id(node)] = f"{len(tensors):06d}"
                tensors[names[id(node)]] = own_memory(node.detach().cpu().contiguous())
            return {"t": names[id(node)]}
        if isinstance(node, dict):
            return {"d": {str(key): skeleton(node[key]) for key in sorted(node)}}
        if isinstance(node, (list, tuple)):
            return {"l": [skeleton(item) for item in node]}
        if node is None or isinstance(node, (bool, int, float, str)):
            return {"v": node}
        raise TypeError(f"a tree cannot hold {type(node).__name__}")

    text = json.dumps(skeleton(tree), sort_keys=True)
    return safetensors.torch.save(tensors, metadata={"tree": text})


def own_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy if it is a view of a larger one: safetensors refuses shared memory."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size() else tensor.clone()


def load(data: bytes) -> Any:
    """The tree of `dump`."""
    tensors = safetensors.torch.load(data)
    length = int.from_bytes(data[:8], "little")
    text = json.loads(data[8 : 8 + length])["__metadata__"]["tree"]

    def tree(node: Any) -> Tree:
        kind, value = next(iter(node.items()))
        if kind == "t":
            return tensors[value]
        if kind == "d":
            return {key: tree(item) for key, item in value.items()}
        return [tree(item) for item in value] if kind == "l" else value

    return tree(json.loads(text))
