"""Find the files of a data set, in this order: an explicit folder, `UNDRIFT_DATA`, system packages, the cache."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from undrift.core.errors import BadRequest
from undrift.data.cache import cache_folder


@dataclass(frozen=True)
class Files:
    """The files of a data set: all of `names`, together in one of `folders` (relative to a root)."""

    folders: tuple[str, ...]
    names: tuple[str, ...]
    system: tuple[str, ...] = ()

    def within(self, root: Path, explicit: bool = False) -> list[Path] | None:
        """All files under this root, or None. Only an explicit folder may hold them directly: the idx files of MNIST
        and Fashion-MNIST have the same names and cannot be distinguished in a common folder."""
        for folder in (*self.folders, *(["."] if explicit or "." in self.folders else [])):
            found = [_spelled(root / folder, name) for name in self.names]
            if all(found):
                return [path for path in found if path is not None]
        return None

    def wanted(self) -> str:
        where = f" in {self.folders[0]}/" if self.folders[0] != "." else ""
        return ", ".join(self.names) + where


def _spelled(folder: Path, name: str) -> Path | None:
    """The file, plain or compressed, with `-idx3-` or `.idx3-` in its name."""
    for spelling in (
        name,
        f"{name}.gz",
        f"{name}.xz",
        name.replace("-idx", ".idx"),
        f"{name.replace('-idx', '.idx')}.gz",
    ):
        if (folder / spelling).is_file():
            return folder / spelling
    return None


def locate(name: str, files: Files, folder: Path | None = None) -> list[Path] | None:
    """The paths of a data set's files in the order of `files.names`, or None if they are not on this machine."""
    if folder is not None:
        return _explicit(name, files, Path(folder))
    for root, explicit in _roots(files):
        if found := files.within(root, explicit):
            return found
    return None


def _explicit(name: str, files: Files, folder: Path) -> list[Path]:
    if folder.is_file() and len(files.names) == 1:
        return [folder]
    if not folder.is_dir():
        raise BadRequest(f"the folder {folder} for {name} does not exist; give the one that holds {files.wanted()}")
    found = files.within(folder, explicit=True)
    if found is None:
        raise BadRequest(f"{folder} does not hold {name}: expected {files.wanted()}")
    return found


def _roots(files: Files) -> Iterator[tuple[Path, bool]]:
    if given := os.environ.get("UNDRIFT_DATA"):
        if not Path(given).is_dir():
            raise BadRequest(f"UNDRIFT_DATA names the folder {given}, which does not exist; correct or unset it")
        yield Path(given), False
    for system in files.system:
        yield Path(system), True
    yield cache_folder() / "data", False


def missing(name: str, files: Files, source: str, tried: Sequence[str] = ()) -> BadRequest:
    """The error for data that were not found. It says which files to put where."""
    root = os.environ.get("UNDRIFT_DATA") or str(cache_folder() / "data")
    failed = f" and could not be downloaded ({'; '.join(tried)})" if tried else ""
    return BadRequest(f"{name} was not found{failed}: get it from {source} and put {files.wanted()} under {root}")
