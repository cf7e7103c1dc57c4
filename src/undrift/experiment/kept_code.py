"""A run keeps the files of the user's own code: copies in `code/`, their SHA-256 in run.toml (`about.code`).

Another file under the same name would be another method. So `resume` compares, and where a file cannot be found any more,
the run's own copy is used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest
from undrift.core.user_code import module_file, sha256, user_files
from undrift.experiment.foreign_code import foreign_code
from undrift.store.durable import make_folder, write_file

FOLDER = "code"


def hashes(options: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 by file, of the user's own code that options name."""
    return {name: sha256(file) for name, file in user_files(foreign_code(options)).items()}


def keep(folder: Path, options: Mapping[str, Any]) -> None:
    """Copy the files of the user's own code into a run's folder."""
    for name, file in user_files(foreign_code(options)).items():
        target = folder / FOLDER / name
        make_folder(target.parent)
        write_file(target, file.read_bytes())


def make_importable(names: Iterable[str], copies: Path) -> None:
    """Let Python find the code that is named: where it is, or in a folder of copies if it is nowhere else."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    missing = [name for name in names if module_file(name.partition(":")[0]) is None]
    if missing and copies.is_dir() and str(copies.resolve()) not in sys.path:
        sys.path.append(str(copies.resolve()))


def changed(about: Mapping[str, Any]) -> list[tuple[str, Path]]:
    """(name, present file) of the user's own code that is not what `about.code` says. A file that is nowhere is left to
    the import, which names it."""
    kept = about.get("code", {})
    found = []
    for name, before in kept.items() if isinstance(kept, Mapping) else ():
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        file = module_file(module)
        if file is not None and sha256(file) != before:
            found.append((name, file))
    return found


def refuse_changed(folder: Path, about: Mapping[str, Any]) -> None:
    """Refuse to resume with other code than the run began with: its rounds so far belong to the old one."""
    for name, file in changed(about):
        raise BadRequest(
            f"{shown(file)} has changed since the run in {folder} began; `cp {folder / FOLDER / name} {shown(file)}` brings "
            f"the old file back, or start another run with the new one: `undrift run {folder / 'run.toml'}`"
        )


def shown(file: Path) -> str:
    """A path as the user would type it."""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
