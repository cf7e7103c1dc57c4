"""What differs between operating systems: locks, names on disk, and whether worker processes can be started.

Linux has everything. macOS has no memory behind a file descriptor that other processes can open, so worker processes
share mapped temporary files there (`engine/arena.py`). Windows passes no descriptors to a child, so runs are inline.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

NAME = os.name  # "posix" or "nt"
BINARY = getattr(os, "O_BINARY", 0)  # Windows would translate line ends in what is written


def module(name: str) -> ModuleType | None:
    """A module of the standard library that not every system has."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def lock(file: int, wait: bool = False) -> None:
    """Lock an open file until it is closed or the process ends, however it ends. An OSError if another process has it
    and `wait` is false."""
    if (fcntl := module("fcntl")) is not None:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    elif (msvcrt := module("msvcrt")) is not None:
        msvcrt.locking(file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)


def starts_workers() -> bool:
    """Whether worker processes can be started here."""
    return NAME == "posix"


def shares_descriptors() -> bool:
    """Whether a process can map memory that another one has behind a descriptor. UNDRIFT_PORTABLE=1 says no."""
    if os.environ.get("UNDRIFT_PORTABLE") == "1":
        return False
    return hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")


def peak_memory() -> int | None:
    """Bytes; None where the system does not say. Linux reports kilobytes, macOS bytes."""
    if (resource := module("resource")) is None:
        return None
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)
