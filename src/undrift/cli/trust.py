"""Ask before code is imported that a folder names. The folder can come from somebody else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer


def ask_trust(folder: Path, names: Sequence[str], trust: bool) -> None:
    """Return if this code may be imported: there is none, `--trust` was given, or the user says so at a terminal."""
    from undrift.experiment.foreign_code import refusal

    if trust or not names:
        return
    fix = "look at it, then resume with --trust"
    if sys.stdin.isatty() and sys.stderr.isatty():
        question = f"{folder} names code that is not Undrift's: {', '.join(names)}. Import and run it?"
        if typer.confirm(question, err=True):
            return
        fix = "it was not imported"
    raise refusal(folder, names, fix)
