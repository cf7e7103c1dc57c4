"""Messages to and from Ray's object store: pickled, with their large tensors beside them as arrays. Ray maps arrays
into another process without pickling or copying them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from undrift.contract.context import Tree
from undrift.engine.arena import large


class ArrayWriter:
    """Collects the large tensors of a message as arrays. `common` maps the ids of tensors that are already in the
    object store to their Ray references. All others are sent with the message."""

    def __init__(self, common: dict[int, Any] | None = None) -> None:
        self.common, self.arrays, self.refs = common or {}, list[np.ndarray](), list[Any]()

    def place(self, tensor: torch.Tensor) -> int | tuple[int, str]:
        """The tensor's number: 0, 1, … for arrays sent with the message, -1, -2, … for those in the store. A dtype that
        numpy does not have is beside the number."""
        if tensor.dtype == torch.bfloat16:
            return self.number(tensor.detach().cpu().contiguous().view(torch.int16)), "bfloat16"
        return self.number(tensor)

    def number(self, tensor: torch.Tensor) -> int:
        ref = self.common.get(id(tensor))
        if ref is None:
            self.arrays.append(array_of(tensor))
            return len(self.arrays) - 1
        if ref not in self.refs:
            self.refs.append(ref)
        return -1 - self.refs.index(ref)


@dataclass(frozen=True)
class ArrayReader:
    """The reading side. Arrays from the store are read-only memory that other processes share, so `common` ones are
    only read, and those of the message are copied unless copy=False."""

    arrays: Sequence[np.ndarray]
    common: Sequence[np.ndarray] = ()
    copy: bool = True

    def tensor(self, place: int | tuple[int, str]) -> torch.Tensor:
        if isinstance(place, tuple):
            return self.read(place[0]).view(getattr(torch, place[1]))
        return self.read(place)

    def read(self, number: int) -> torch.Tensor:
        if number >= 0 and self.copy:
            return torch.from_numpy(self.arrays[number].copy())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "not writable": these tensors are never written
            return torch.from_numpy(self.arrays[number] if number >= 0 else self.common[-1 - number])


def array_of(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().contiguous().numpy()


def large_tensors(tree: Tree) -> Iterator[torch.Tensor]:
    """The tensors of a tree that travel outside the message."""
    for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ():
        yield from large_tensors(value)
    if isinstance(tree, torch.Tensor) and large(tree):
        yield tree


def bytes_of(message: bytes, arrays: Sequence[np.ndarray]) -> int:
    return len(message) + sum(array.nbytes for array in arrays)
