"""Folders of runs: find an existing one, claim one for a new run."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from undrift.core.errors import BadRequest
from undrift.experiment.options import Options
from undrift.experiment.setup import Setup
from undrift.store.durable import make_folder
from undrift.store.own_files import refuse_links
from undrift.store.run_store import locked


def find_folder(run: str | Path) -> Path:
    """The folder for a path, a name inside `runs`, or the path of a run.toml or run.sqlite. It may not exist."""
    if not isinstance(run, (str, os.PathLike)):
        raise BadRequest(f"a run is the path of its folder, or its name inside runs, not {run!r}")
    if not str(run).strip():
        raise BadRequest(
            f"{str(run)!r} is not a run: a run is the path of its folder, or its name; `undrift runs` lists them"
        )
    folder = Path(run)
    if folder.name in ("run.toml", "run.sqlite"):
        folder = folder.parent
    return Path("runs") / folder if not folder.exists() and (Path("runs") / folder).is_dir() else folder


def run_folder(run: str | Path) -> Path:
    """The folder of one existing run; refused if it is a folder of several runs or of none, or has links in it."""
    folder = find_folder(run)
    if (folder / "advise.toml").exists():
        raise BadRequest(
            f"{run} is a race of many runs: its index.html shows it; `undrift advise --resume {run}` finishes it"
        )
    if (folder / "compare.toml").exists() or (folder / "paper.toml").exists():
        raise BadRequest(
            f"{run} holds many runs: `undrift report {run}` shows them; resume it with --resume of compare or paper run"
        )
    if not (folder / "run.toml").exists() or not (folder / "run.sqlite").exists():
        raise BadRequest(
            f"{run} is not a run: a run's folder has a run.toml and a run.sqlite; `undrift runs` lists them"
        )
    refuse_links(folder)
    return folder


def claim_folder(options: Options, setup: Setup) -> Path:
    """Create the folder of a new run: `--out`, or the next free runs/DATA-METHOD-N."""
    if options.out is None:
        method = re.sub(r"[^A-Za-z0-9.@+-]+", "_", setup.method.name).strip("_")[:60]
        data = re.sub(r"[^A-Za-z0-9.-]+", "_", Path(setup.federation.name).stem or "data")
        return next_free(Path("runs"), f"{data}-{method}")
    folder = Path(options.out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not options.force:
            raise BadRequest(f"{folder} is taken; {free_name(folder)} is free, and --force moves the old run aside")
        refuse_in_use(folder)
        folder.rename(free_name(folder.with_name(folder.name + ".old")))
    try:
        make_folder(folder)
        (folder / ".write-test").write_bytes(b"x" * 4096)
        (folder / ".write-test").unlink()
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise BadRequest(f"{folder} cannot be written: {error.strerror or error}; choose another --out") from None
    return folder


def refuse_in_use(folder: Path) -> None:
    """Refuse a folder whose run is live: its process would go on writing into the folder that was moved aside."""
    if (folder / "lock").is_file():
        os.close(locked(folder))


def free_name(folder: Path) -> Path:
    """The first of FOLDER-1, FOLDER-2, … that does not exist."""
    number = 1
    while (other := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    return other


def next_free(parent: Path, stem: str) -> Path:
    """Create the first of PARENT/STEM-1, PARENT/STEM-2, … that does not exist. Safe against other processes."""
    number = 1
    while True:
        folder = parent / f"{stem}-{number}"
        try:
            make_folder(folder, exist_ok=False)
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            raise BadRequest(f"{folder} cannot be written: {error.strerror or error}; choose another --out") from None
