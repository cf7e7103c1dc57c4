"""Which files in a run folder are the run's own. Only these are deleted, and nothing in the folder may be a link.

A run folder can come from somebody else. A link in it would let us read, overwrite or delete files outside it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from undrift.core.errors import BadRequest

CHECKPOINT = re.compile(r"\d{8,12}\.safetensors")
SEGMENT = re.compile(r"\d{8,12}\.states")
TABLE = re.compile(r"(rounds|metrics|notes|events|times)\.(csv|parquet)|run\.toml")
TOP = re.compile(
    r"run\.toml|run\.sqlite(-wal|-shm|-journal|-crc32)?|model\.safetensors|lock|report\.html|index\.html|roll\.json|border\.jsonl|mlflow\.txt"
)
CODE = re.compile(r"\w+\.py")
EVENTS = re.compile(r"events\.out\.tfevents\..*")
FOLDERS = {"": TOP, "code": CODE, "checkpoints": CHECKPOINT, "states": SEGMENT, "export": TABLE, "tensorboard": EVENTS}


def is_own(pattern: re.Pattern[str], name: str) -> bool:
    """Whether a name is of this pattern, or of a file that is still being written."""
    return pattern.fullmatch(name.removesuffix(".part")) is not None


def refuse_links(folder: Path) -> None:
    """Refuse a folder with a symbolic link, a pipe or a device anywhere in it. The folder itself may be a link."""
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    what = "a symbolic link" if entry.is_symlink() else "not a plain file"
                    raise BadRequest(
                        f"{entry.path} is {what}, which has no place in a run's folder; copy what it stands for, or delete it"
                    )


def remove_own(folder: Path) -> list[Path]:
    """Delete a run's own files and the folders that are empty then. Returns what is left."""
    for name, pattern in FOLDERS.items():
        place = folder / name
        for path in list(place.iterdir()) if place.is_dir() else ():
            if is_own(pattern, path.name) and path.is_file():
                path.unlink()
        if name and place.is_dir() and not any(place.iterdir()):
            place.rmdir()
    left = sorted(path for path in folder.rglob("*") if not path.is_dir())
    if not any(folder.iterdir()):
        folder.rmdir() if not folder.is_symlink() else folder.unlink()
    return left
