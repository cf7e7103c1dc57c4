"""Which code outside Undrift a run names: `package:name`, in its method, its parts and its other options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from undrift.contract.parts import AXES
from undrift.core.text import TOKEN

# Options whose text is of the grammar of `core/text.py`. `parts` are what is built; the method is then their label.
NAMING = (
    "method", "parts", "sampling", "objective", "personalize", "weighting", "combine", "server", "private", "upload", "model", "loss",
    "metrics", "partition", "selection", "noise", "domains", "faults", "augment", "diagnose",
)  # fmt: skip
OURS = ("undrift.",)


def foreign_code(options: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> list[str]:
    """The code that the options of a run.toml name, as `package:name`, each once. Nothing is imported. Options that are
    `given` again do not count: they replace what run.toml says."""
    found: list[str] = []
    for option in NAMING:
        if (given or {}).get(option) is not None or (option == "method" and options.get("parts") is not None):
            continue
        value = options.get(option)
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str) and not text.startswith("object:"):
                found += [name for name in own_names(text) if not name.startswith(OURS)]
    return list(dict.fromkeys(found))


def own_names(text: str) -> list[str]:
    """The words `package:name` of a text, without the axis in front of a part."""
    found, place = [], 0
    while match := TOKEN.match(text, place):
        word = match.group("word") or ""
        if ":" in word:
            axis, _, rest = word.partition(".")
            found.append(rest if axis in AXES and rest else word)
        place = match.end()
    return found
