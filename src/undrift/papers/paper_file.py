"""paper.toml: which preset the runs of a folder belong to. Free of torch, because the live page reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from undrift.core.files import read_toml
from undrift.core.schema import Name, check, setting


@dataclass(frozen=True)
class PaperFile:
    """The keys of paper.toml."""

    preset: Name = setting(..., "name of the preset")
    scale: Literal["quick", "mid", "paper"] = setting(..., "its scale")
    options: dict[str, Any] = setting(..., "the options of all runs")


def paper_file(path: Path) -> dict[str, Any]:
    """A paper.toml, checked."""
    return check(PaperFile, read_toml(path), str(path))
