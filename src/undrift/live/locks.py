"""Which runs a process works on now. A run holds a lock on its file `lock` until its process ends, however it ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from undrift.core import system

TABLE = Path("/proc/locks")


def holders() -> Callable[[Path], bool]:
    """A function that says whether a process holds the lock on a file, as of now.

    Linux lists all locks, so asking takes none: a run that starts at the same moment is not disturbed. Elsewhere the file
    is locked for a few microseconds."""
    try:
        lines = TABLE.read_text().splitlines()
    except OSError:
        return tried
    held = set()
    for line in lines:
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[3] == "WRITE":
            held.add(fields[5].rpartition(":")[2])  # the inode; the device is another one on some file systems

    def is_held(path: Path) -> bool:
        try:
            return str(os.stat(path).st_ino) in held
        except OSError:
            return False

    return is_held


def tried(path: Path) -> bool:
    """Whether the lock cannot be taken."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        system.lock(file)
    except OSError:
        return True
    finally:
        with contextlib.suppress(OSError):
            os.close(file)
    return False
