"""Client states and shelf rows: versioned trees in append-only segment files, newest ones also in memory.

A version is never changed. It is appended to the open segment when it is put (in the order of the calls, by one
writer), so a memory budget only ever drops what can be read again. A segment counts once a checkpoint has named it;
what no checkpoint names is an orphan. Only versions below the one the oldest checkpoint needs are collected.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from undrift.context import Tree, copied
from undrift.errors import RunFailed
from undrift.store import trees

Key = tuple[str, int, int]  # kind, client, version


@dataclass(frozen=True)
class Place:
    path: str
    start: int
    length: int
    sha256: str


class States:
    """`folder=None` keeps everything in memory (runs without a folder)."""

    def __init__(self, folder: Path | None, budget: int = 10**9) -> None:
        self.folder, self.budget = folder, budget
        self.places: dict[Key, Place] = {}
        self._versions: dict[tuple[str, int], set[int]] = {}
        self._hot: OrderedDict[Key, tuple[Tree, int]] = OrderedDict()
        self._hot_bytes = 0
        self._segment: str | None = None
        self._file: int | None = None
        self._end = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def put(self, kind: str, client: int, version: int, tree: Tree) -> None:
        key = (kind, client, version)
        self._forget(key)
        self._versions.setdefault((kind, client), set()).add(version)
        data = trees.dump(tree)
        if self.folder is None:
            self._remember(key, copied(tree), len(data))
            return
        self.places[key] = self._append(data)
        self._remember(key, copied(tree), len(data))
        while self._hot_bytes > self.budget and self._hot:
            self._forget(next(iter(self._hot)))

    def get(self, kind: str, client: int, version: int) -> Tree:
        """A copy of one version; it must exist."""
        key = (kind, client, version)
        if key in self._hot:
            self._hot.move_to_end(key)
            return copied(self._hot[key][0])
        if key not in self.places:
            raise RunFailed(f"the {kind} of client {client} in version {version} is not in the store")
        tree = trees.load(self.read(self.places[key], f"the {kind} of client {client}"))
        self._remember(key, tree, self.places[key].length)
        while self._hot_bytes > self.budget and len(self._hot) > 1:
            self._forget(next(iter(self._hot)))
        return copied(tree)

    def read(self, place: Place, what: str) -> bytes:
        assert self.folder is not None
        try:
            with open(self.folder / place.path, "rb") as file:
                data = os.pread(file.fileno(), place.length, place.start)
        except OSError as error:
            raise RunFailed(f"{what} cannot be read: {error}") from None
        if hashlib.sha256(data).hexdigest() != place.sha256:
            raise RunFailed(f"{what} in {place.path} is damaged")
        return data

    def adopt(self, key: Key, place: Place) -> None:
        """A version that a checkpoint names, found again."""
        self.places[key] = place
        self._versions.setdefault(key[:2], set()).add(key[2])

    def drop_below(self, kind: str, client: int, version: int) -> None:
        versions = self._versions.get((kind, client), set())
        for old in [v for v in versions if v < version]:
            versions.discard(old)
            self.places.pop((kind, client, old), None)
            self._forget((kind, client, old))

    def seal(self) -> list[str]:
        """Make the open segment durable and begin another; returns the paths that were sealed."""
        if self._file is None or self._segment is None:
            return []
        os.fsync(self._file)
        os.close(self._file)
        sealed, self._file, self._segment = self._segment, None, None
        return [sealed]

    def collect(self, needed: set[str]) -> None:
        """Delete segment files that nothing refers to any more."""
        if self.folder is None:
            return
        for path in self.folder.iterdir():
            if path.name not in needed and path.name != self._segment:
                path.unlink()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, data: bytes) -> Place:
        assert self.folder is not None
        if self._file is None:
            number = 1 + max((int(p.stem) for p in self.folder.glob("*.states")), default=-1)
            self._segment, self._end = f"{number:08d}.states", 0
            self._file = os.open(self.folder / self._segment, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        assert self._segment is not None
        view, written = memoryview(data), 0
        while written < len(view):
            written += os.write(self._file, view[written:])
        place = Place(self._segment, self._end, len(data), hashlib.sha256(data).hexdigest())
        self._end += len(data)
        return place

    def _remember(self, key: Key, tree: Tree, size: int) -> None:
        self._hot[key] = (tree, size)
        self._hot_bytes += size

    def _forget(self, key: Key) -> None:
        if key in self._hot:
            self._hot_bytes -= self._hot.pop(key)[1]
