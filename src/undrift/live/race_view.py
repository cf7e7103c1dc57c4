"""The page of a race (`undrift advise`): its runs as they fill in, differences as seeds are added, and the answer so far."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from undrift.advice import advice_page
from undrift.advice.budget import FRESH
from undrift.advice.criterion import Criterion, criterion_of
from undrift.advice.paired import paired
from undrift.core.files import read_toml
from undrift.core.headline import Headline
from undrift.live.index import Study
from undrift.live.records import HeadlineAt, RunRow
from undrift.live.study_view import Line, cell
from undrift.report import page, plots
from undrift.report.differences import shrinking
from undrift.report.page import Table
from undrift.study.comparison import safe

FOLDER = re.compile(r"(\d{3})-(.*)-seed(-?\d+)")
DRAWN = 10  # contenders with curves: there are as many colours
Answer = Mapping[str, Any]


@dataclass
class Entrant:
    """A contender with its runs, by seed."""

    label: str
    number: int  # of its folders, which chooses its colour
    runs: dict[int, list[RunRow]] = field(default_factory=dict)
    became: str = "open"
    left: bool = False  # whether it left the race


def sections(study: Study, quick: bool) -> list[page.Section]:
    answer = answer_in(study.path, study.stamp)
    fresh_from = first_seed(study.path, study.stamp) + FRESH
    entrants = entrants_of(study, answer or {"heats": []}, fresh_from)
    shown: list[page.Section] = [("filling", filling(entrants, fresh_from), "Runs as they arrive")]
    if (drawn := curves(entrants, criterion_of(answer))) is not None:
        shown.append(("race-curves", drawn, "Curves"))
    if quick or answer is None:
        return shown
    headline = advice_page.headline_of(answer)
    numbers = {one.label: one.number for one in entrants}
    said = advice_page.sections(answer, numbers)
    first = 2 if answer["recommended"] else 1  # the answer and its command
    steps = fresh_steps(entrants, answer, fresh_from, headline)
    if steps:
        title = f"{steps[0][0]} as fresh seeds are added"
        shown.append(("fresh", shrinking(steps, headline.percent, title, "fresh seeds"), "What is decided"))
    if gaps := heat_steps(answer, numbers, headline):
        title = "behind the leader of each heat"
        shown.append(("gaps", shrinking(gaps, headline.percent, title, "heat"), "" if steps else "What is decided"))
    return [*said[:first], *shown, *said[first:]]


@functools.lru_cache(16)
def answer_in(path: Path, stamp: Any) -> dict[str, Any] | None:
    """The content of advise.json, read again when the stamp changed; None before the first heat is prepared."""
    try:
        return dict(json.loads((path / "advise.json").read_text()))
    except (OSError, ValueError):
        return None


@functools.lru_cache(16)
def first_seed(path: Path, stamp: Any) -> int:
    seed = read_toml(path / "advise.toml").get("seed")
    return seed if isinstance(seed, int) else 0


def label_of(one: Mapping[str, Any]) -> str:
    return f"{one['method']} lr={one['lr']:g}"


def entrants_of(study: Study, answer: Answer, fresh_from: int) -> list[Entrant]:
    """The contenders in the order of their folders, each with what became of it in its last heat."""
    found, criterion = dict[str, Entrant](), criterion_of(answer)
    for row in study.runs:
        if name := FOLDER.fullmatch(row.path.name):
            label = f"{row.method} lr={row.options.get('lr', '?')}"
            known = found.setdefault(name[2], Entrant(label, int(name[1])))
            known.runs.setdefault(int(name[3]), []).append(compared(row, criterion))
    heats = answer["heats"]
    over = any(seed >= fresh_from for one in found.values() for seed in one.runs)
    for number, heat in enumerate(heats, 1):
        for one in heat["standings"]:
            label = label_of(one)
            if (entrant := found.get(safe(label))) is not None:
                entrant.label, entrant.left = label, one["outcome"] not in ("leader", "kept")
                said = advice_page.became_of(one, over and number == len(heats))
                entrant.became = f"{said} (heat {number})" if entrant.left else said
    return sorted(found.values(), key=lambda one: one.number)


def compared(row: RunRow, criterion: Criterion) -> RunRow:
    """A run with the value that counts in this race. A run's own is that of its global model, if it has one."""
    if not criterion.of_clients or not row.done:
        return row
    headline = HeadlineAt(row.headline.of, criterion.stage, criterion.data)
    return replace(row, headline=headline, value=headline.last(Line(row.key, row.path).query))


def filling(entrants: Sequence[Entrant], fresh_from: int) -> Table:
    """A line per contender: what became of it, and its runs."""
    seeds = sorted({seed for one in entrants for seed in one.runs})
    names = [f"seed {seed}" if seed < fresh_from else f"fresh seed {seed - fresh_from + 1}" for seed in seeds]
    lines = [[one.label, one.became, *(cell(one.runs.get(seed, [])) for seed in seeds)] for one in entrants]
    return Table([["contender", "what became of it", *names], *lines], [one.label for one in entrants])


def curves(entrants: Sequence[Entrant], criterion: Criterion) -> Any:
    """The validation headline of those who are in the race; None before the first round that has one."""
    racing = [one for one in entrants if not one.left][:DRAWN]
    rows = [(one, row) for one in racing for runs in one.runs.values() for row in runs if row.done]
    if not rows:
        return None
    lines = [Line(one.label, row.path) for one, row in rows]
    metric = rows[0][1].headline.metric
    query = "SELECT 1 FROM metrics WHERE stage=? AND data='validation' AND metric=? LIMIT 1"
    known = any(line.query(query, (criterion.stage, metric)) for line in lines)
    if criterion.of_clients and not known:
        return None
    place = (criterion.stage, "validation" if known else criterion.data)
    return plots.bands(lines, metric, place, {one.label: one.number for one in racing})


def fresh_steps(entrants: Sequence[Entrant], answer: Answer, fresh_from: int, headline: Headline) -> list[Any]:
    """The challenger minus plain averaging after one fresh seed, two, …: (name, number, (seeds, estimate, low, high) …)."""
    values: dict[str, dict[int, float]] = {}
    for one in entrants:
        for seed, rows in one.runs.items():
            ended = [row.value for row in rows if row.state == "finished" and row.value is not None]
            if seed >= fresh_from and ended:
                values.setdefault(one.label, {})[seed] = ended[0]
    plain = (answer["difference"] or {}).get("plain") or (
        label_of(answer["recommended"]) if answer["recommended"] else ""
    )
    other = next((one for one in entrants if one.label in values and one.label != plain), None)
    if other is None or plain not in values:
        return []
    seeds = sorted(set(values[plain]) & set(values[other.label]))
    gaps = [headline.factor * (values[other.label][seed] - values[plain][seed]) for seed in seeds]
    steps = []
    for count in range(1, len(gaps) + 1):
        found = paired(gaps[:count], headline.lower)
        steps.append((count, found.estimate, found.low, found.high))
    return [(f"{other.label} − {plain}", other.number, steps)] if steps else []


def heat_steps(answer: Answer, numbers: Mapping[str, int], headline: Headline) -> list[Any]:
    """The leader minus each of the others after every heat, of those who are in the last one."""
    steps: dict[str, list[tuple[int, float, float, float]]] = {}
    for number, heat in enumerate(answer["heats"], 1):
        for one in heat["standings"]:
            if one["outcome"] != "leader" and one["gap"] is not None:
                known = one["low"] is not None and one["high"] - one["low"] <= advice_page.WIDE
                low, high = (one["low"], one["high"]) if known or not headline.percent else (None, None)
                ends = (-math.inf, math.inf) if low is None or high is None else (low, high)
                mean, *interval = (headline.factor * value for value in (one["gap"], *ends))
                steps.setdefault(label_of(one), []).append((number, mean, *interval))
    last = {label_of(one) for one in answer["heats"][-1]["standings"]} if answer["heats"] else set()
    return [(label, numbers.get(label, 0), values) for label, values in steps.items() if label in last]
