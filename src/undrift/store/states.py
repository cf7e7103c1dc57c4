"""Client states and shelf rows: versioned trees in append-only segment files, the newest also in memory.

A version never changes. `put` keeps it in memory, and one writer thread appends it to the open segment, in the order of
the calls. The memory budget drops only versions that are on disk. A segment is valid once a checkpoint names it. A
segment that no checkpoint names is an orphan. Only versions below the one that the oldest checkpoint needs are deleted.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from undrift.contract.context import Tree, copied
from undrift.core import system
from undrift.core.errors import RunFailed
from undrift.store import trees
from undrift.store.durable import make_folder, sync_folder
from undrift.store.own_files import SEGMENT, is_own

Key = tuple[str, int, int]  # kind, client, version


@dataclass(frozen=True)
class Place:
    """Where a version is on disk: segment file, offset, length, hash."""

    path: str
    start: int
    length: int
    sha256: str


class Writer:
    """One thread that does the submitted work in order. An error is raised at the next call."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="undrift-store")
        self._pending: list[Future[Any]] = []

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        self.raise_errors()
        future = self._thread.submit(work, *args)
        self._pending.append(future)
        return future

    def raise_errors(self) -> None:
        """Raise the error of work that has failed."""
        done = [future for future in self._pending if future.done()]
        self._pending = [future for future in self._pending if not future.done()]
        for future in done:
            self._result(future)

    def finish(self) -> None:
        """Wait until all submitted work is done."""
        pending, self._pending = self._pending, []
        for future in pending:
            self._result(future)

    def _result(self, future: Future[Any]) -> None:
        try:
            future.result()
        except OSError as error:
            raise RunFailed(
                f"the run's folder cannot be written ({error.strerror or error}); the last whole checkpoint is there; "
                "free some space and `undrift resume` the run"
            ) from None

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)


class States:
    """The store of all versions. `folder=None` keeps everything in memory (runs without a folder). Else at most half of
    the `budget` of bytes waits for the disk, and
    a quarter of the budget of written versions stays in memory. The system's page
    cache holds more of them at no cost. A `read_only` store creates nothing."""

    def __init__(self, folder: Path | None, budget: int = 10**9, read_only: bool = False) -> None:
        self.folder, self.budget = folder, budget
        self.places: dict[Key, Place] = {}
        self.writer = Writer()
        self.waited = 0.0  # seconds a caller waited for the disk
        self._versions: dict[tuple[str, int], set[int]] = {}
        self._hot: OrderedDict[Key, tuple[Tree, int]] = OrderedDict()  # versions in memory, least recently used first
        self._hot_bytes = 0
        self._unwritten: dict[Key, int] = {}  # sizes of versions that are not on disk yet
        self._lock = threading.Lock()
        self._segment: str | None = None
        self._file: int | None = None
        self._end = 0
        if folder is not None and not read_only and not folder.is_dir():
            make_folder(folder)

    def put(self, kind: str, client: int, version: int, tree: Tree) -> None:
        """Store a copy of a version. The writer thread writes it to disk."""
        key, tree = (kind, client, version), copied(tree)
        size = size_of(tree)
        self._versions.setdefault((kind, client), set()).add(version)
        self._remember(key, tree, size)
        if self.folder is None:
            return
        with self._lock:
            self.places.pop(key, None)
            self._unwritten[key] = size
        self.writer.submit(self._write, key, tree)
        if sum(self._unwritten.values()) > self.budget / 2:
            began = time.monotonic()
            self.writer.finish()
            self.waited += time.monotonic() - began
        self._shrink()

    def get(self, kind: str, client: int, version: int) -> Any:
        """A copy of one version, which must exist."""
        key = (kind, client, version)
        if key in self._hot:
            self._hot.move_to_end(key)
            return copied(self._hot[key][0])
        if key not in self.places:
            raise RunFailed(f"the {kind} of client {client} in version {version} is not in the store")
        began = time.monotonic()
        tree = trees.load(self.read(self.places[key], f"the {kind} of client {client}"))
        self.waited += time.monotonic() - began
        self._remember(key, tree, self.places[key].length)
        self._shrink()
        return copied(tree)

    def read(self, place: Place, what: str) -> bytes:
        """The checked bytes of a version. `what` names it in an error."""
        assert self.folder is not None
        numbers = isinstance(place.start, int) and isinstance(place.length, int) and min(place.start, place.length) >= 0
        if not numbers or SEGMENT.fullmatch(str(place.path)) is None:
            raise RunFailed(f"{what} has no place in the states of the run: run.sqlite is damaged")
        try:
            with open(self.folder / place.path, "rb") as file:
                file.seek(place.start)
                data = file.read(place.length)
        except (OSError, OverflowError, MemoryError) as error:  # the last two: a damaged start or length
            raise RunFailed(f"{what} cannot be read: {getattr(error, 'strerror', None) or error}") from None
        if hashlib.sha256(data).hexdigest() != place.sha256:
            raise RunFailed(f"{what} in {place.path} is damaged")
        return data

    def adopt(self, key: Key, place: Place) -> None:
        """Register a version on disk that a checkpoint names (after a resume)."""
        self.places[key] = place
        self._versions.setdefault(key[:2], set()).add(key[2])

    def drop_below(self, kind: str, client: int, version: int) -> None:
        """Forget all versions older than this one."""
        versions = self._versions.get((kind, client), set())
        for old in [v for v in versions if v < version]:
            versions.discard(old)
            with self._lock:
                self.places.pop((kind, client, old), None)
                self._unwritten.pop((kind, client, old), None)
            self._forget((kind, client, old))

    def close(self) -> None:
        self.writer.close()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # ---- on the writer's thread ------------------------------------------------------------------------------

    def _write(self, key: Key, tree: Tree) -> None:
        if key not in self._unwritten:  # it was dropped, or put again, before it was written
            return
        place = self._append(trees.pieces(tree))
        with self._lock:
            if self._unwritten.pop(key, None) is not None:
                self.places[key] = place

    def seal(self) -> None:
        """Sync and close the open segment, and sync its name. The next version begins another."""
        if self._file is not None:
            assert self.folder is not None
            os.fsync(self._file)
            sync_folder(self.folder)
            os.close(self._file)
            self._file = self._segment = None

    def collect(self, named: set[str]) -> None:
        """Delete segments that neither a checkpoint (`named`) nor a version in use refers to. Other files stay."""
        assert self.folder is not None
        with self._lock:
            needed = {place.path for place in self.places.values()} | named | {self._segment}
        for path in self.folder.iterdir():
            if path.name not in needed and is_own(SEGMENT, path.name):
                path.unlink()

    def _append(self, pieces: Iterable[bytes | memoryview]) -> Place:
        """Append to the open segment, or to a new one."""
        assert self.folder is not None
        if self._file is None:
            taken = [int(p.stem) for p in self.folder.iterdir() if SEGMENT.fullmatch(p.name)]
            number = 1 + max(taken, default=-1)
            self._segment, self._end = f"{number:08d}.states", 0
            self._file = os.open(
                self.folder / self._segment, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.BINARY, 0o644
            )
        assert self._segment is not None
        digest, start = hashlib.sha256(), self._end
        for piece in pieces:
            view, written = memoryview(piece), 0
            while written < len(view):
                written += os.write(self._file, view[written:])
            digest.update(view)
            self._end += len(view)
        return Place(self._segment, start, self._end - start, digest.hexdigest())

    # ---- memory ----------------------------------------------------------------------------------------------

    def _remember(self, key: Key, tree: Tree, size: int) -> None:
        self._forget(key)
        self._hot[key] = (tree, size)
        self._hot_bytes += size

    def _forget(self, key: Key) -> None:
        if key in self._hot:
            self._hot_bytes -= self._hot.pop(key)[1]

    def _shrink(self) -> None:
        """Drop the least recently used versions from memory, but never one that is not on disk yet."""
        if self._hot_bytes <= self.budget / 4:
            return
        for key in list(self._hot):
            if key in self.places and self._hot_bytes > self.budget / 4:
                self._forget(key)


def size_of(tree: Tree) -> int:
    """The bytes of a tree's tensors, and 16 for any other value."""
    if isinstance(tree, torch.Tensor):
        return int(tree.numel() * tree.element_size())
    if isinstance(tree, dict):
        return sum(size_of(value) for value in tree.values())
    return sum(size_of(value) for value in tree) if isinstance(tree, list) else 16
