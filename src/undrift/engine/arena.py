"""Tensors between the driver and its worker processes in mapped memory: written once, read in place, never pickled.

An arena is anonymous memory behind a file descriptor (memfd), so nothing is left on disk or in /dev/shm, however a
process dies. Where other processes cannot open it (macOS), it is a temporary file that they map, in a folder named after
the process. What a killed process leaves is removed by the next one that needs such a folder.

A message is pickled with its large tensors replaced by references (process, place, shape). A tensor that occurs in ten
orders is written once. A placed tensor stays valid until the second `turn` after it, unless it is released before: pages
of large tensors that nobody reads any more go back to the system.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import itertools
import math
import mmap
import os
import pickle
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Protocol

import cloudpickle
import torch

from undrift.core import system

SMALL = 2048  # bytes below which a tensor travels inside the message
ALIGN = 64
RELEASED = 1 << 20  # bytes from which memory is given back; smaller pieces are cheaper to keep than to map again
KEPT = 1 << 22  # bytes of an arena's half that stay for its next exchange: to fault them in takes longer than a copy
SERIALS = itertools.count()


class Block:
    """One piece of mapped memory that an arena fills from the front."""

    def __init__(self, size: int) -> None:
        self.size, self.serial, self.used = size, next(SERIALS), 0
        self.path: str | None = None
        if system.shares_descriptors():
            self.fd = os.memfd_create("undrift")
        else:
            self.fd, self.path = tempfile.mkstemp(dir=block_folder(os.getpid()))
        os.ftruncate(self.fd, size)
        self.memory = mmap.mmap(self.fd, size)

    @property
    def place(self) -> int | str:
        """Where another process finds it: the descriptor or the file."""
        return self.fd if self.path is None else self.path

    def __del__(self, close: Any = os.close, unlink: Any = os.unlink) -> None:  # `os` may be gone when Python ends
        close(self.fd)  # mappings of this memory stay valid
        if self.path is not None:
            with contextlib.suppress(OSError):
                unlink(self.path)


# pid, descriptor or file, the block's serial and size, offset, dtype, shape
Reference = tuple[int, int | str, int, int, int, str, tuple[int, ...]]
PREFIX = "undrift-blocks-"


@cache
def block_folder(pid: int) -> str:
    """This process's folder of blocks, removed when the process ends. Folders of processes that are gone are removed."""
    root = tempfile.gettempdir()
    for name in os.listdir(root):
        owner = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and owner.isdigit() and not alive(int(owner)):
            shutil.rmtree(os.path.join(root, name), ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=f"{PREFIX}{pid}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


class Arena:
    """The writing side: two sets of blocks, used in turns."""

    def __init__(self) -> None:
        self._halves: list[list[Block]] = [[], []]
        self._now = 0
        self._placed: dict[int, tuple[torch.Tensor, Reference]] = {}

    def turn(self) -> None:
        """Begin a new exchange: what was placed before the last exchange may be overwritten."""
        self._now = 1 - self._now
        self._placed = {}
        blocks = self._halves[self._now]
        for number, block in enumerate(blocks):
            kept = 0 if number else KEPT
            give_back(block.memory, kept, block.used - kept)
            block.used = 0

    def place(self, tensor: torch.Tensor) -> Reference:
        """Copy a tensor into the arena, once per exchange."""
        known = self._placed.get(id(tensor))
        if known is not None:
            return known[1]
        flat = tensor
        if tensor.dim() != 1 or tensor.requires_grad or tensor.device.type != "cpu" or not tensor.is_contiguous():
            flat = tensor.detach().cpu().contiguous().reshape(-1)
        size = flat.numel() * flat.element_size()
        block = self._room(size)
        target = torch.frombuffer(block.memory, dtype=flat.dtype, count=flat.numel(), offset=block.used)
        target.copy_(flat)
        dtype = str(flat.dtype).removeprefix("torch.")
        reference = (os.getpid(), block.place, block.serial, block.size, block.used, dtype, tuple(tensor.shape))
        block.used += -(-size // ALIGN) * ALIGN
        self._placed[id(tensor)] = tensor, reference  # holding the tensor keeps its id from being reused
        return reference

    def forget(self, tensors: Iterable[torch.Tensor] | None = None) -> None:
        """Drop the references to the placed tensors' originals (of all of them, or of these), so that their memory can be
        freed."""
        if tensors is None:
            self._placed = {}
        for tensor in tensors or ():
            self._placed.pop(id(tensor), None)

    def release(self, reference: Reference) -> None:
        """Give back the memory of a placed tensor that its reader needs no more."""
        _, _, serial, _, offset, dtype, shape = reference
        for block in (block for half in self._halves for block in half if block.serial == serial):
            give_back(block.memory, offset, math.prod(shape) * getattr(torch, dtype).itemsize)

    def allocated(self) -> int:
        """Bytes of memory that the arena has from the system now."""
        return sum(512 * os.fstat(block.fd).st_blocks for half in self._halves for block in half)

    def _room(self, size: int) -> Block:
        blocks = self._halves[self._now]
        for block in blocks:
            if block.size - block.used >= size:
                return block
        block = Block(max(-(-size // 4096) * 4096, 2 * sum(b.size for b in blocks), 1 << 22))
        blocks.append(block)
        return block


class MappedBlocks:
    """The reading side: blocks of other processes, mapped at their first use. With `read_only` a write to one of their
    tensors ends the process instead of changing what others read."""

    def __init__(self, read_only: bool = False) -> None:
        self.read_only = read_only
        self._mapped: dict[tuple[int, int], mmap.mmap] = {}  # by pid and serial, because file descriptors are reused
        self._places: dict[int, tuple[tuple[int, int], int, int]] = {}  # of large tensors, by their address

    def tensor(self, reference: Reference) -> torch.Tensor:
        pid, place, serial, size, offset, dtype, shape = reference
        key = (pid, serial)
        if key not in self._mapped:
            flags, access = (os.O_RDONLY, mmap.ACCESS_READ) if self.read_only else (os.O_RDWR, mmap.ACCESS_WRITE)
            handle = os.open(place if isinstance(place, str) else f"/proc/{pid}/fd/{place}", flags)
            try:
                self._mapped[key] = mmap.mmap(handle, size, access=access)
            finally:
                os.close(handle)
        kind, count, memory = getattr(torch, dtype), math.prod(shape), self._mapped[key]
        if self.read_only:
            with quiet():  # of memory that is "not writable" torch warns: that is the purpose
                tensor = torch.frombuffer(memory, dtype=kind, count=count, offset=offset)
        else:
            tensor = torch.frombuffer(memory, dtype=kind, count=count, offset=offset)
        if len(shape) != 1:
            tensor = tensor.view(shape)
        if count * kind.itemsize >= RELEASED:
            self._places[tensor.data_ptr()] = key, offset, count * kind.itemsize
        return tensor

    def release(self, tensors: Iterable[torch.Tensor]) -> None:
        """Give back the memory of tensors that were read and are needed no more."""
        if not self._places:  # no large tensor is mapped
            return
        for tensor in tensors:
            key, offset, size = self._places.pop(tensor.data_ptr(), ((0, 0), 0, 0))
            if key in self._mapped:
                give_back(self._mapped[key], offset, size)

    def forget(self) -> None:
        """Drop the mappings. Memory that no tensor uses is unmapped."""
        self._mapped.clear()
        self._places.clear()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def mapped_tensors(references: Mapping[str, Reference]) -> dict[str, torch.Tensor]:
    """Named tensors of an arena, in memory that this process can only read."""
    blocks = MappedBlocks(read_only=True)
    return {name: blocks.tensor(reference) for name, reference in references.items()}


def give_back(memory: mmap.mmap, start: int, size: int) -> None:
    """Return the whole pages of a span to the system, for all processes that map it. Linux only, a saving elsewhere."""
    first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, (start + size) // mmap.PAGESIZE * mmap.PAGESIZE
    if last - first >= RELEASED // 2 and hasattr(mmap, "MADV_REMOVE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_REMOVE, first, last - first)


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """The large tensors of a tree or message."""
    if large(tree):
        yield tree
    elif isinstance(tree, (dict, list, tuple)):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from tensors_in(item)


class TensorWriter(Protocol):
    def place(self, tensor: torch.Tensor) -> Any: ...


class TensorReader(Protocol):
    def tensor(self, reference: Any, /) -> torch.Tensor: ...


def large(value: Any) -> bool:
    """Whether a value is a tensor that travels outside the message."""
    return type(value) is torch.Tensor and value.numel() * value.element_size() >= SMALL


class TensorPickler(pickle.Pickler):
    """Places large tensors in an arena. Its hook is called for objects only, not for every number and name as a
    `persistent_id` is."""

    def __init__(self, buffer: io.BytesIO, arena: TensorWriter) -> None:
        super().__init__(buffer, protocol=5)
        self.arena = arena

    def reducer_override(self, value: Any) -> Any:
        return (placed, (self.arena.place(value),)) if large(value) else NotImplemented


class TensorUnpickler(pickle.Unpickler):
    def __init__(self, data: bytes, blocks: TensorReader) -> None:
        super().__init__(io.BytesIO(data))
        self.blocks = blocks

    def find_class(self, module: str, name: str) -> Any:
        return self.blocks.tensor if (module, name) == (__name__, placed.__name__) else super().find_class(module, name)

    def persistent_load(self, reference: Any) -> torch.Tensor:
        return self.blocks.tensor(reference)


def placed(reference: Any) -> torch.Tensor:
    """Stands in a message for the reader's own way to a tensor."""
    raise pickle.UnpicklingError("a message with tensors in mapped memory is read with `unpack`")


def pack(value: Any, arena: TensorWriter) -> bytes:
    """A message as bytes, its large tensors placed in the arena. Objects that only cloudpickle can pickle (a part from
    a notebook) need `pack_objects`."""
    buffer = io.BytesIO()
    TensorPickler(buffer, arena).dump(value)
    return buffer.getvalue()


def pack_objects(value: Any, arena: TensorWriter) -> bytes:
    """As `pack`, with cloudpickle."""
    buffer = io.BytesIO()
    pickler = cloudpickle.Pickler(buffer, protocol=5)
    pickler.persistent_id = lambda o: arena.place(o) if large(o) else None
    pickler.dump(value)
    return buffer.getvalue()


def unpack(data: bytes, blocks: TensorReader) -> Any:
    """The message, its large tensors read in place."""
    return TensorUnpickler(data, blocks).load()
