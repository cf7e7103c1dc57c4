"""Trees as bytes: safetensors for the tensors, JSON with sorted keys for the rest. Nothing is pickled, so a file of
unknown origin cannot run code. Equal trees give equal bytes, whatever the hash seed."""

from __future__ import annotations

import json
from typing import Any

import safetensors.torch
import torch

from undrift.contract.context import Tree

# How safetensors calls the dtypes and in which order it writes them: those that need the largest alignment first.
DTYPES = {
    torch.uint64: "U64", torch.int64: "I64", torch.float64: "F64", torch.float32: "F32", torch.uint32: "U32", torch.int32: "I32",
    torch.bfloat16: "BF16", torch.float16: "F16", torch.uint16: "U16", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
    torch.bool: "BOOL",
}  # fmt: skip


def dump(tree: Tree) -> bytes:
    """A tree of dicts, lists, tensors, numbers, text and None as bytes."""
    return b"".join(pieces(tree))


def pieces(tree: Tree) -> list[bytes | memoryview]:
    """The bytes of `dump`, piece by piece: a header, and the memory of the tensors as it is. A large state is written
    without a copy of it; safetensors itself makes three."""
    tensors: dict[str, torch.Tensor] = {}
    header: dict[str, Any] = {"__metadata__": {"tree": json.dumps(skeleton(tree, tensors, {}), sort_keys=True)}}
    order = [name for kind in DTYPES for name, tensor in tensors.items() if tensor.dtype == kind]
    if len(order) < len(tensors):
        raise TypeError(f"a tree cannot hold tensors of {next(t.dtype for n, t in tensors.items() if n not in order)}")
    end = 0
    for name in order:
        begin, end = end, end + tensors[name].numel() * tensors[name].element_size()
        shape = list(tensors[name].shape)
        header[name] = {"dtype": DTYPES[tensors[name].dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    data = [tensors[name].reshape(-1).view(torch.uint8).numpy().data for name in order]
    return [len(text).to_bytes(8, "little") + text, *data]


# Functions of the module: one inside another that calls itself would hold the tensors until the next garbage collection.
def skeleton(node: Tree, tensors: dict[str, torch.Tensor], names: dict[int, str]) -> Any:
    """A tree as JSON takes it, with names for its tensors, which are put into `tensors`."""
    if isinstance(node, torch.Tensor):
        if id(node) not in names:  # a tensor that occurs twice is written once
            names[id(node)] = f"{len(tensors):06d}"
            tensors[names[id(node)]] = node.detach().cpu().contiguous()
        return {"t": names[id(node)]}
    if isinstance(node, dict):
        return {"d": {str(key): skeleton(node[key], tensors, names) for key in sorted(node)}}
    if isinstance(node, (list, tuple)):
        return {"l": [skeleton(item, tensors, names) for item in node]}
    if node is None or isinstance(node, (bool, int, float, str)):
        return {"v": node}
    raise TypeError(f"a tree cannot hold {type(node).__name__}")


def load(data: bytes) -> Any:
    """The tree of `dump`."""
    length = int.from_bytes(data[:8], "little")
    tensors = safetensors.torch.load(data)
    return filled(json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["tree"]), tensors)


def filled(node: Any, tensors: dict[str, torch.Tensor]) -> Tree:
    """The tree of a skeleton."""
    kind, value = next(iter(node.items()))
    if kind == "t":
        return tensors[value]
    if kind == "d":
        return {key: filled(item, tensors) for key, item in value.items()}
    return [filled(item, tensors) for item in value] if kind == "l" else value
