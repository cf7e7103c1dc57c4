"""Messages to and from Ray's object store: pickled, with large tensors as arrays beside them, which Ray neither pickles
nor copies when it maps them into another process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from undrift.contract.context import Tree
from undrift.engine.arena import large


class Parcel:
    """The large tensors of a message as arrays: `common` ones (by id) by their place in the store, others along with it."""

    def __init__(self, common: dict[int, Any] | None = None) -> None:
        self.common, self.arrays, self.refs = common or {}, list[np.ndarray](), list[Any]()

    def place(self, tensor: torch.Tensor) -> int:
        """The tensor's number: along with the message from 0 up, in the store from -1 down."""
        ref = self.common.get(id(tensor))
        if ref is None:
            self.arrays.append(array_of(tensor))
            return len(self.arrays) - 1
        if ref not in self.refs:
            self.refs.append(ref)
        return -1 - self.refs.index(ref)


@dataclass(frozen=True)
class Opened:
    """The reader's side. What comes from the store is read-only memory that others may share: copied, or only looked at."""

    arrays: Sequence[np.ndarray]
    common: Sequence[np.ndarray] = ()
    copy: bool = True

    def tensor(self, number: int) -> torch.Tensor:
        if number >= 0 and self.copy:
            return torch.from_numpy(self.arrays[number].copy())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "not writable": nobody writes
            return torch.from_numpy(self.arrays[number] if number >= 0 else self.common[-1 - number])


def array_of(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().contiguous().numpy()


def large_tensors(tree: Tree) -> Iterator[torch.Tensor]:
    for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (list, tuple)) else ():
        yield from large_tensors(value)
    if isinstance(tree, torch.Tensor) and large(tree):
        yield tree


def weight(message: bytes, arrays: Sequence[np.ndarray]) -> int:
    return len(message) + sum(array.nbytes for array in arrays)
