"""Tensors between our own processes through mapped memory: written once, read in place, never pickled.

An arena is anonymous memory behind a file descriptor (memfd), so that nothing is left on disk or in /dev/shm however a
process dies. A message is pickled with its large tensors replaced by references (whose, where, shape); the same tensor
in ten orders is written once. What was placed stays valid until the second `turn` after it.
"""

from __future__ import annotations

import io
import itertools
import mmap
import os
import pickle
import tempfile
from typing import Any, Protocol

import cloudpickle
import torch

SMALL = 2048  # bytes below which a tensor travels inside the message
ALIGN = 64
SERIALS = itertools.count()


class Block:
    def __init__(self, size: int) -> None:
        self.size = size
        if hasattr(os, "memfd_create"):
            self.fd = os.memfd_create("undrift")
        else:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the block
            self.fd = self.file.fileno()
        os.ftruncate(self.fd, size)
        self.memory = mmap.mmap(self.fd, size)
        self.serial, self.used = next(SERIALS), 0

    def __del__(self) -> None:
        if not hasattr(self, "file"):
            os.close(self.fd)  # the mapping lives on for whoever still looks at it


Reference = tuple[
    int, int, int, int, int, str, tuple[int, ...]
]  # pid, fd, block's serial and size, offset, dtype, shape


class Arena:
    """The writer's side: two halves that take turns."""

    def __init__(self) -> None:
        self._halves: list[list[Block]] = [[], []]
        self._now = 0
        self._placed: dict[int, tuple[torch.Tensor, Reference]] = {}

    def turn(self) -> None:
        """Begin a new exchange: what was placed before the last one may be overwritten."""
        self._now = 1 - self._now
        self._placed = {}
        blocks = self._halves[self._now]
        for block in blocks:
            block.used = 0

    def place(self, tensor: torch.Tensor) -> Reference:
        known = self._placed.get(id(tensor))
        if known is not None:
            return known[1]
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        size = flat.numel() * flat.element_size()
        block = self._room(size)
        target = torch.frombuffer(block.memory, dtype=flat.dtype, count=flat.numel(), offset=block.used)
        target.copy_(flat)
        dtype = str(flat.dtype).removeprefix("torch.")
        reference = (os.getpid(), block.fd, block.serial, block.size, block.used, dtype, tuple(tensor.shape))
        block.used += -(-size // ALIGN) * ALIGN
        self._placed[id(tensor)] = tensor, reference  # holding the tensor keeps its id from being reused
        return reference

    def forget(self) -> None:
        """Let go of the originals of what was placed."""
        self._placed = {}

    def _room(self, size: int) -> Block:
        blocks = self._halves[self._now]
        for block in blocks:
            if block.size - block.used >= size:
                return block
        block = Block(max(-(-size // 4096) * 4096, 2 * sum(b.size for b in blocks), 1 << 22))
        blocks.append(block)
        return block


class Windows:
    """The reader's side: blocks of other processes, mapped when first seen."""

    def __init__(self) -> None:
        self._mapped: dict[tuple[int, int], mmap.mmap] = {}  # by pid and serial: descriptors are used again

    def tensor(self, reference: Reference) -> torch.Tensor:
        pid, fd, serial, size, offset, dtype, shape = reference
        key = (pid, serial)
        if key not in self._mapped:
            handle = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)
            try:
                self._mapped[key] = mmap.mmap(handle, size)
            finally:
                os.close(handle)
        count = 1
        for length in shape:
            count *= length
        return torch.frombuffer(self._mapped[key], dtype=getattr(torch, dtype), count=count, offset=offset).view(shape)

    def forget(self) -> None:
        """What nobody looks at any more is unmapped."""
        self._mapped.clear()


class Writer(Protocol):
    def place(self, tensor: torch.Tensor) -> Any: ...


class Reader(Protocol):
    def tensor(self, reference: Any, /) -> torch.Tensor: ...


def large(value: Any) -> bool:
    return type(value) is torch.Tensor and value.numel() * value.element_size() >= SMALL


def pack(value: Any, arena: Writer) -> bytes:
    """A message; objects that only cloudpickle can name (a part from a notebook) travel in `pack_objects`."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=5)
    pickler.persistent_id = lambda o: arena.place(o) if large(o) else None  # type: ignore[method-assign]
    pickler.dump(value)
    return buffer.getvalue()


def pack_objects(value: Any, arena: Writer) -> bytes:
    buffer = io.BytesIO()
    pickler = cloudpickle.Pickler(buffer, protocol=5)
    pickler.persistent_id = lambda o: arena.place(o) if large(o) else None
    pickler.dump(value)
    return buffer.getvalue()


def unpack(data: bytes, windows: Reader) -> Any:
    unpickler = pickle.Unpickler(io.BytesIO(data))
    unpickler.persistent_load = windows.tensor  # type: ignore[method-assign]
    return unpickler.load()
