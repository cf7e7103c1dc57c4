"""What is less than in the paper, in few lines: rows whose methods changed in the same way share a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from undrift.core import text
from undrift.core.errors import BadRequest
from undrift.core.words import some

INSTEAD = " instead of "


def condensed(sentences: Iterable[str]) -> list[str]:
    """Sentences `ROW: METHOD instead of METHOD` that change the same parameters, as one: `A, B and 3 more: T 30 instead of
    1000`. Others stay as they are."""
    groups: dict[str, list[str]] = {}
    found = list[str]()
    for sentence in dict.fromkeys(sentences):
        row, _, methods = sentence.partition(": ")
        ours, instead, theirs = methods.partition(INSTEAD)
        change = changed_parameters(ours, theirs) if instead else ""
        if not change:
            found.append(sentence)
            continue
        if change not in groups:
            found.append(change)
        groups.setdefault(change, []).append(row)
    return [f"{some(groups[one])}: {one}" if one in groups else one for one in found]


def changed_parameters(ours: str, theirs: str) -> str:
    """`T 30 instead of 1000` for two methods that differ in parameters only; empty for anything else."""
    try:
        mine, other = text.parse_method(ours), text.parse_method(theirs)
    except BadRequest:
        return ""
    if [(mark, call.name, call.args) for mark, call in mine] != [(mark, call.name, call.args) for mark, call in other]:
        return ""
    changes: list[tuple[str, Any, Any]] = [
        (key, value, before.options[key])
        for (_, call), (_, before) in zip(mine, other)
        for key, value in call.options.items()
        if call.options.keys() == before.options.keys() and value != before.options[key]
    ]
    return ", ".join(f"{key} {text.spell(new)}{INSTEAD}{text.spell(old)}" for key, new, old in changes)
