"""Ask before code is imported that a folder names. The folder can come from somebody else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from undrift.experiment.result import Result


def open_trusted(run: str, trust: bool) -> Result:
    """A run with its network, if the code that it names may be imported. What is damaged is said."""
    from undrift.cli import note
    from undrift.experiment.folders import run_folder
    from undrift.experiment.foreign_code import foreign_code
    from undrift.experiment.resume import open_run
    from undrift.experiment.run_file import run_file

    folder = run_folder(run)
    ask_trust(folder, foreign_code(run_file(folder).options), trust, "look at it, then repeat the command with --trust")
    result = open_run(run, trust=True)
    note(result.damage)
    return result


def ask_trust(
    folder: Path, names: Sequence[str], trust: bool, fix: str = "look at it, then resume with --trust"
) -> None:
    """Return if this code may be imported: there is none, `--trust` was given, or the user says so at a terminal."""
    from undrift.experiment.foreign_code import refusal

    if trust or not names:
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        question = f"{folder} names code that is not Undrift's: {', '.join(names)}. Import and run it?"
        if typer.confirm(question, err=True):
            return
        fix = "it was not imported"
    raise refusal(folder, names, fix)
