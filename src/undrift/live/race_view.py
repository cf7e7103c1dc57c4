"""The page of a race (`undrift advise`): its runs as they fill in, and the answer so far."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from undrift.advice import advice_page
from undrift.live.index import Study
from undrift.live.records import RunRow
from undrift.live.study_view import cell
from undrift.report import page
from undrift.report.page import Table
from undrift.study.comparison import safe

FOLDER = re.compile(r"\d{3}-(.*)-seed(-?\d+)")


def sections(study: Study, quick: bool) -> list[page.Section]:
    answer = answer_in(study.path, study.stamp)
    shown: list[page.Section] = [("filling", filling(study, answer), "Runs as they arrive")]
    if quick or answer is None:
        return shown
    first, *others = advice_page.sections(answer)
    return [first, *shown, *others]


@functools.lru_cache(16)
def answer_in(path: Path, stamp: Any) -> dict[str, Any] | None:
    """The content of advise.json, read again when the stamp changed; None before the first heat is prepared."""
    try:
        return dict(json.loads((path / "advise.json").read_text()))
    except (OSError, ValueError):
        return None


def filling(study: Study, answer: dict[str, Any] | None) -> Table:
    """A line per contender: what became of it, and its runs."""
    became: dict[str, str] = {}
    for number, heat in enumerate(answer["heats"] if answer else [], 1):
        for one in heat["standings"]:
            left = one["outcome"] not in ("leader", "kept")
            said = advice_page.OUTCOMES[one["outcome"]]
            became[safe(f"{one['method']} lr={one['lr']:g}")] = f"{said} (heat {number})" if left else said
    cells: dict[str, dict[int, list[RunRow]]] = {}
    for row in study.runs:
        if found := FOLDER.fullmatch(row.path.name):
            cells.setdefault(found[1], {}).setdefault(int(found[2]), []).append(row)
    seeds = sorted({seed for runs in cells.values() for seed in runs})
    table = [["contender", "what became of it", *(f"seed {seed}" for seed in seeds)]]
    table += [
        [label.replace("_lr=", " lr="), became.get(label, "open"), *(cell(runs.get(seed, [])) for seed in seeds)]
        for label, runs in cells.items()
    ]
    return Table(table, list(cells))
