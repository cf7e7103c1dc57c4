"""The page of a comparison or of a preset's runs: the table as it fills, paired differences, what is decided and what is open."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undrift.core.errors import BadRequest, RunFailed
from undrift.live.index import Index, Study
from undrift.live.records import STATES, RunRow
from undrift.live.runs_view import link, study_state
from undrift.report import page, plots
from undrift.report.differences import shrinking
from undrift.report.page import Table
from undrift.store.record import reading
from undrift.study.comparison import Comparison, read_comparison, safe
from undrift.study.conclusion import Conclusion, by_rank
from undrift.study.standings import Row, results_table
from undrift.study.tasks import read_rows
from undrift.study.verdict import shown

if TYPE_CHECKING:
    from undrift.papers.papers import Preset

FOLDER = re.compile(r"(\d\d)-.*-seed(-?\d+)")


@dataclass(frozen=True)
class Line:
    """A run as a curve of its method."""

    label: str
    path: Path

    def query(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with reading(self.path) as ask:
            return ask(query, values)


def sections(index: Index, study: Study, quick: bool = False) -> list[page.Section]:
    try:
        if study.race:
            from undrift.live import race_view

            return [("about", about(study)), *race_view.sections(study, quick)]
        finished = rows_in(study.path, study.stamp)
        make = preset_sections if study.paper else comparison_sections
        return [("about", about(study)), *make(index, study, finished, quick)]
    except (BadRequest, RunFailed, OSError) as error:
        return [("about", f"This folder cannot be shown as a comparison: {error}.")]


@functools.lru_cache(16)
def rows_in(path: Path, stamp: Any) -> list[Row]:
    """The rows of finished runs, read again when the stamp changed."""
    return [row for row in read_rows(path).values() if "failed" not in row]


@functools.lru_cache(16)
def comparison_in(path: Path, stamp: Any) -> Comparison:
    return read_comparison(path)


def about(study: Study) -> str:
    done = sum(row.state == "finished" for row in study.runs)
    left = [row.left for row in study.runs if row.left is not None]
    state = study_state(study)
    counted = f"{done} of {len(study.runs)} runs that were started are finished"
    sentence = f"{STATES[state]} {state}: {counted if study.runs else 'no run has started yet'}"
    more = f", {len(left)} go on" if left else ""
    again = (
        f"`undrift advise --resume {study.path}`"
        if study.race
        else f"The same command with --out {study.path} --resume"
    )
    stopped = "" if state in ("running", "finished") else f"\n{again} continues it."
    return f"{sentence}{more}.{stopped}"


def cell(rows: Sequence[RunRow]) -> Any:
    """A cell of the table as it fills: nothing, a run that goes on, or its result."""
    if not rows:
        return "—"
    row = max(rows, key=lambda one: (one.state == "finished", one.state == "running", one.done))
    value = row.headline.shown(row.value)
    text = value if row.state == "finished" else f"{value} ({row.done}/{row.rounds})"
    return (
        "html",
        f"<a href='{html.escape(link(row))}' class='state {row.state}'>{STATES[row.state]} {html.escape(text)}</a>",
    )


def all_seeds(rows: Sequence[RunRow]) -> Any:
    """A cell with every seed of a preset's cell."""
    ordered = sorted(rows, key=lambda row: row.seed)
    return ("html", " ".join(cell([row])[1] for row in ordered)) if rows else "—"


# ---- a comparison ----------------------------------------------------------------------------------------------------


def comparison_sections(index: Index, study: Study, finished: list[Row], quick: bool) -> list[page.Section]:
    comparison = comparison_in(study.path, study.stamp)
    rejected = {f"{study.key}/{name}" for name in comparison.rejected}
    kept = [row for row in study.runs if row.key not in rejected]
    labels = [entry.label for entry in comparison.entries]
    seeds = [seed for seed, _ in comparison.seeds]
    cells: dict[tuple[int, int], list[RunRow]] = {}
    for row in kept:
        if found := FOLDER.fullmatch(row.path.name):
            cells.setdefault((int(found[1]), int(found[2])), []).append(row)
    table = [["method", *(f"seed {seed}" for seed in seeds)]]
    table += [[label, *(cell(cells.get((number, seed), [])) for seed in seeds)] for number, label in enumerate(labels)]
    lines = [
        Line(labels[number], row.path)
        for (number, _), rows in sorted(cells.items())
        for row in rows
        if row.done and number < len(labels)
    ]
    numbers = index.colours({
        label: [row for (place, _), rows in cells.items() if place == number for row in rows]
        for number, label in enumerate(labels)
    })  # fmt: skip
    headline = kept[0].headline if kept else None
    shown: list[page.Section] = [("filling", Table(table, labels), "Results as they arrive")]
    if lines and headline is not None:
        place = (headline.stage, headline.data)
        shown.append(("curves", plots.bands(lines, headline.metric, place, numbers), "Curves"))
    if quick:
        return shown
    rows = [row for row in finished if Path(row["run"]).name not in comparison.rejected]
    return [*shown, *decided(numbers, rows, comparison)]


def decided(numbers: Mapping[str, int], rows: list[Row], comparison: Comparison) -> list[page.Section]:
    """What the finished runs allow to say."""
    if len({row["method"] for row in rows}) < 2:
        return [
            ("conclusion", "Nothing is decided yet: fewer than two methods have a finished run.", "What is decided")
        ]
    found = by_rank(rows, looks=comparison.looks)
    pairs = [["pair", f"{found.name}, difference{' in points' * found.headline.percent}", "seeds", "verdict"]]
    for (first, second), verdict in found.pairs.items():
        said = {"true": f"decided: {first} is ahead", "false": f"decided: {second} is ahead", "open": "open"}
        pairs.append(
            [f"{first} − {second}", shown(verdict, 2, found.headline.factor), str(verdict.seeds), said[verdict.outcome]]
        )
    steps = intervals(numbers, rows, found, comparison)
    return [
        ("conclusion", found.sentence, "What is decided"),
        *([("shrinking", shrinking(steps, found.headline.percent))] if steps else []),
        ("pairs", Table(pairs, [line[0] for line in pairs[1:]])),
        ("results", results_table(rows), "Finished runs"),
    ]


def intervals(numbers: Mapping[str, int], rows: list[Row], found: Conclusion, comparison: Comparison) -> list[Any]:
    """The leading method against each other one, after two seeds, three, …"""
    leader, seeds = found.methods[0], sorted({row["seed"] for row in rows})
    factor = found.headline.factor
    steps: dict[str, list[tuple[int, float, float, float]]] = {}
    for count in range(2, len(seeds) + 1):
        early = by_rank([row for row in rows if row["seed"] in seeds[:count]], found.name, comparison.looks)
        for (first, second), verdict in early.pairs.items():
            if leader in (first, second) and verdict.seeds == count and abs(verdict.low) < float("inf"):
                sign, other = (1, second) if first == leader else (-1, first)
                low, high = sorted((sign * factor * verdict.low, sign * factor * verdict.high))
                steps.setdefault(other, []).append((count, sign * factor * verdict.mean, low, high))
    return [(f"{leader} − {other}", numbers.get(other, 0), values) for other, values in steps.items()]


# ---- a preset --------------------------------------------------------------------------------------------------------


def preset_sections(index: Index, study: Study, finished: list[Row], quick: bool) -> list[page.Section]:
    from undrift.papers import claims, papers
    from undrift.papers import table as paper_table
    from undrift.papers.paper_file import paper_file
    from undrift.papers.values import with_values

    preset = papers.load(paper_file(study.path / "paper.toml")["preset"])
    runs: dict[str, list[RunRow]] = {}
    for row in study.runs:
        runs.setdefault(row.path.name.rpartition("-seed")[0], []).append(row)
    name = {(r.name, c.name): f"{safe(r.name)}-{safe(c.name)}" for r in preset.rows for c in preset.columns}
    columns = [c.name for c in preset.columns if any(name[r.name, c.name] in runs for r in preset.rows)]
    lines = [r.name for r in preset.rows if any(name[r.name, c] in runs for c in columns)]
    table = [
        ["", *columns],
        *[[line, *(all_seeds(runs.get(name[line, column], [])) for column in columns)] for line in lines],
    ]
    shown: list[page.Section] = [
        ("source", f"{preset.title}\n{preset.source}"), ("filling", Table(table, lines), "Results as they arrive"),
    ]  # fmt: skip
    numbers = index.colours({line: [row for c in columns for row in runs.get(name[line, c], [])] for line in lines})
    for place, column in enumerate(columns):
        curves = [Line(line, row.path) for line in lines for row in runs.get(name[line, column], []) if row.done]
        if curves:
            shown.append(
                (
                    f"curves-{place}",
                    plots.bands(curves, study.runs[0].headline.metric, ("G", "global"), numbers),
                    column,
                )
            )
    if quick:
        return shown
    rows = [with_values(preset, row) for row in finished]
    if rows:
        shown += [
            (f"ours-{place}", part, title) for place, (title, part) in enumerate(paper_table.tables(preset, rows))
        ]
    if preset.claims:
        shown.append(
            ("claims", claims.claim_table(claims.outcomes(preset, rows)), "Claims: what is decided, what is open")
        )
        shown += claim_figures(preset, rows)
    return shown


def claim_figures(preset: Preset, rows: Sequence[Row]) -> list[page.Section]:
    """The differences of every claim after two seeds, three, …: a figure for each that was run."""
    from undrift.papers import claims

    seeds, shown = sorted({row["seed"] for row in rows}), list[page.Section]()
    for place, claim in enumerate(preset.claims):
        steps: dict[str, list[tuple[int, float, float, float]]] = {}
        for count in range(2, len(seeds) + 1):
            early = [row for row in rows if row["seed"] in seeds[:count]]
            for verdict in claims.outcome(preset, claim, early).verdicts:
                if verdict.seeds == count:
                    step = (count, verdict.mean, verdict.low, verdict.high)
                    steps.setdefault(verdict.question.label, []).append(step)
        if steps:
            lines = [(label, number, values) for number, (label, values) in enumerate(steps.items())]
            figure = shrinking(lines, False, "difference as seeds are added")
            shown.append((f"claim-{place}", ("details", claim.sentence, figure)))
    return shown
