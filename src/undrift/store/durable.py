"""Writes that survive a power cut: content first, then the name, then the folder that holds the name.

A system keeps written data in memory for a while, and a new name in a folder is data of that folder. So a file is on disk
after an fsync of the file and an fsync of its folder, in that order. Nothing may refer to the file before.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from undrift.core import system


def write_file(path: Path, data: bytes) -> None:
    """Write a file so that it is complete and on disk, or not there at all. An older file is replaced."""
    write_pieces(path, [data])


def write_pieces(path: Path, pieces: Iterable[bytes | memoryview]) -> str:
    """The same with the content in pieces. Returns its SHA-256."""
    temporary, digest = path.with_name(path.name + ".part"), hashlib.sha256()
    with open(temporary, "wb") as file:
        for piece in pieces:
            file.write(piece)
            digest.update(piece)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)
    return digest.hexdigest()


def append_line(path: Path, line: str) -> None:
    """Append a line to a text file and wait until it is on disk. A line that a kill cut short is ended first."""
    new = not path.exists()
    with open(path, "ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else "\n" + line
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_folder(path.parent)


def make_folder(path: Path, mode: int = 0o777, exist_ok: bool = True) -> None:
    """Create a folder and its missing parents, and wait until all of them are on disk. `mode` is that of the folder."""
    if not path.parent.exists():
        make_folder(path.parent)
    path.mkdir(mode=mode, exist_ok=exist_ok)
    with contextlib.suppress(PermissionError):  # a parent that may be written but not read cannot be opened
        sync_folder(path.parent)  # also where the folder existed: it may be a second old and not on disk yet


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on disk: files that were created, renamed or deleted."""
    if system.NAME == "nt":
        return  # a folder cannot be opened there, and the file system's journal has the names
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
