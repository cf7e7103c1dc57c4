"""Decoded arrays as mapped files: the first process decodes them, later processes map the same pages.

There is one folder per (data set, source files with their size and time of change, options). A changed source gets
another folder, so no folder has to be invalidated. A folder appears by one rename, complete or not at all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

FORMAT = "1"

Arrays = dict[str, np.ndarray]


def cache_folder() -> Path:
    """`UNDRIFT_CACHE`, else the user's cache folder."""
    if given := os.environ.get("UNDRIFT_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "undrift"


def cached(name: str, sources: Sequence[Path], make: Callable[[], Arrays], options: str = "") -> Arrays:
    """The arrays of `make`, decoded once per source. Images (`x_…`) are mapped read-only, the others are in memory."""
    folder = cache_folder() / "decoded" / f"{name}-{_key(sources, options)}"
    if not folder.is_dir():
        arrays = make()
        if not _write(folder, arrays):
            return arrays
    return {file.stem: _read(file) for file in sorted(folder.glob("*.npy"))}


def _key(sources: Sequence[Path], options: str) -> str:
    digest = hashlib.sha256(f"{FORMAT}\n{options}\n".encode())
    for source in sources:
        stat = source.stat()
        digest.update(f"{source.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _read(file: Path) -> np.ndarray:
    mapped = file.stem.startswith("x_")
    array: np.ndarray = np.load(file, mmap_mode="r" if mapped else None, allow_pickle=False)
    return array


def _write(folder: Path, arrays: Arrays) -> bool:
    """Whether the folder is there. On a full or read-only disk the run goes on without a cache, only slower."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError:
        return False
    try:
        for name, array in arrays.items():
            np.save(building / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)
        building.rename(folder)
    except OSError:
        return folder.is_dir()  # true if another process was first, false if the disk is full
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return True
