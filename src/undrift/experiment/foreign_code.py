"""Which code outside Undrift a run names: `package:name`, in its method, its parts and its other options.

A run folder can come from somebody else: its code runs only if it is trusted. `ud.load`, `show`, `report` and `export`
import none of it. `resume` does, if it is told to trust the run.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from undrift.contract.parts import AXES
from undrift.core.errors import BadRequest
from undrift.core.text import TOKEN

# Options whose text is of the grammar of `core/text.py`. `parts` are what is built; the method is then their label.
NAMING = (
    "method", "parts", "sampling", "objective", "personalize", "weighting", "combine", "server", "private", "upload", "model", "task",
    "loss",    "metrics", "partition", "selection", "noise", "domains", "faults", "augment", "diagnose",
)  # fmt: skip
OURS = ("undrift.",)
Trust = bool | Collection[str]  # everything or nothing, or these names


def foreign_code(options: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> list[str]:
    """The code that the options of a run.toml name, as `package:name`, each once. Nothing is imported. Options that are
    `given` again do not count: they replace what run.toml says."""
    found: list[str] = []
    given = given or {}
    for option in NAMING:
        replaced = given.get("method" if option == "parts" else option) is not None
        if replaced or (option == "method" and options.get("parts") is not None):
            continue
        value = options.get(option)
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str) and not text.startswith("object:"):
                found += [name for name in own_names(text) if not name.startswith(OURS)]
                if option in ("loss", "metrics") and ":" not in text:
                    found.append(text)  # there are none but the user's own: what is before the colon is imported
    return list(dict.fromkeys(found))


def own_names(text: str) -> list[str]:
    """The words `package:name` of a text, without the axis in front of a part."""
    found, place = [], 0
    while match := TOKEN.match(text, place):
        word = match.group("word") or ""
        if ":" in word:
            axis, _, rest = word.partition(".")
            name = rest if axis in AXES and rest else word
            if name.startswith("object:"):  # what text cannot name; the rest is its repr
                break
            found.append(name)
        place = match.end()
    return found


def untrusted(names: Collection[str], trust: Trust) -> list[str]:
    """The names that are not trusted. To import a package is to run it, so who trusts one of its names trusts all."""
    packages = () if isinstance(trust, bool) else {name.partition(":")[0] for name in trust}
    return [] if trust is True else [name for name in names if name.partition(":")[0] not in packages]


def resume_command(folder: Path, options: Mapping[str, Any]) -> str:
    """What continues a run. Code of the user's own has to be trusted."""
    return f"undrift resume {shlex.quote(str(folder))}{' --trust' if foreign_code(options) else ''}"


def refusal(folder: Path, names: Collection[str], fix: str) -> BadRequest:
    """The error for a run whose code may not be imported."""
    return BadRequest(f"the run in {folder} names code that is not Undrift's: {', '.join(names)}; {fix}")
