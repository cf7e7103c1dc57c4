"""The page of all runs: a table, and the curves of those that are selected."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any
from urllib.parse import quote, urlencode

from undrift.core.errors import BadRequest
from undrift.core.words import clock
from undrift.live.index import Index, Study
from undrift.live.records import STATES, Query, RunRow
from undrift.report import page, plots
from undrift.report.page import Table
from undrift.store.record import reading
from undrift.study.comparison import safe

AXES = {"rounds": "round", "seconds": "seconds of the rounds", "bytes": "bytes sent and received"}
DRAWN, DRAWN_FIRST = 40, 8  # curves at most; curves if none are selected
BYTES = (
    "SELECT round, SUM(value) FROM metrics WHERE metric IN ('bytes_up', 'bytes_down') AND client IS NULL GROUP BY round",
    "SELECT round, SUM(CAST(value AS REAL)) FROM notes WHERE name = 'bytes_up' GROUP BY round",
    "SELECT round, SUM(CAST(value AS REAL)) FROM notes WHERE name = 'bytes' AND part LIKE 'upload.%' GROUP BY round",
)


def sections(index: Index, selected: Sequence[str] = (), x: str = "rounds") -> list[page.Section]:
    rows = sorted(index.runs.values(), key=lambda row: row.key)
    if not rows and not index.studies:
        return [("about", empty(index))]
    chosen = [index.runs[key] for key in selected if key in index.runs][:DRAWN] or first_choice(index, rows)
    shown: list[page.Section] = [("about", about(rows))]
    if index.studies:
        shown.append(("studies", studies_table(index), "Comparisons"))
    return [
        *shown,
        (
            "runs",
            [("filter", ("html", filters(rows))), ("table", runs_table(rows, {row.key for row in chosen}))],
            "Runs",
        ),
        ("curves", curves_section(index, chosen, x, bool(selected)), "Curves"),
    ]


def empty(index: Index) -> str:
    places = ", ".join(str(root) for root in index.roots.values())
    return f"There are no runs in {places} yet. `undrift run` and `undrift compare` make some; they appear here by themselves."


def about(rows: Sequence[RunRow]) -> str:
    counted = Counter(row.state for row in rows)
    return f"{len(rows)} run{'s' * (len(rows) != 1)}: " + (
        ", ".join(f"{counted[state]} {state}" for state in STATES if counted[state]) or "none yet"
    )


def first_choice(index: Index, rows: Sequence[RunRow]) -> list[RunRow]:
    """What is drawn if nothing is selected: the runs that go on, else those that ended last."""
    running = [row for row in rows if row.state == "running" and row.done]
    ended = sorted((row for row in rows if row.done), key=lambda row: index.changed(row.key))
    return running[:DRAWN_FIRST] or sorted(ended[-DRAWN_FIRST:], key=lambda row: row.key)


def link(row: RunRow) -> str:
    return f"/{'deployment' if row.deployment else 'run'}?id={quote(row.key)}"


def state_cell(state: str, why: str = "") -> tuple[str, str]:
    """A word and a sign, so that no colour is needed to read it."""
    title = f" title='{html.escape(why)}'" if why else ""
    return "html", f"<span class='state {state}'{title}>{STATES.get(state, '')} {html.escape(state)}</span>"


def runs_table(rows: Sequence[RunRow], drawn: set[str]) -> Table:
    head = ["draw", "run", "state", "headline", "rounds", "left", "method", "data", "seed"]
    lines = []
    for row in rows:
        key = html.escape(row.key)
        box = f"<input type='checkbox' aria-label='draw {key}' data-select='{key}'{' checked' * (row.key in drawn)}>"
        lines.append([
            ("html", box), ("html", f"<a href='{html.escape(link(row))}'>{key}</a>"), state_cell(row.state, row.why),
            row.headline.shown(row.value), f"{row.done} of {row.rounds}", "—" if row.left is None else clock(row.left),
            row.method, row.data, str(row.seed),
        ])  # fmt: skip
    return Table([head, *lines], [row.key for row in rows])


def filters(rows: Sequence[RunRow]) -> str:
    """Fields that hide rows of the table. The page's script does it."""

    def choice(name: str, column: int, values: Sequence[str]) -> str:
        options = "".join(f"<option>{html.escape(value)}</option>" for value in sorted(set(values)))
        return (
            f"<label>{name} <select data-filter='{column}' data-exact='yes'><option value=''>all</option>{options}"
            "</select></label>"
        )

    states = [f"{STATES[row.state]} {row.state}" for row in rows]
    return (
        "<div class='filters'><label>name <input type='search' id='filter-name' data-filter='1' size='14'></label>"
        f"{choice('method', 6, [row.method for row in rows])}{choice('data', 7, [row.data for row in rows])}"
        f"{choice('state', 2, states)}"
        "<button type='button' data-clear='yes'>draw none</button></div>"
    )


def studies_table(index: Index) -> Table:
    head = ["comparison", "methods", "runs", "finished", "state"]
    lines = []
    for study in index.studies.values():
        address = html.escape(f"/study?id={quote(study.key)}")
        finished = sum(row.state == "finished" for row in study.runs)
        methods = list(dict.fromkeys(row.method for row in study.runs))
        lines.append([
            ("html", f"<a href='{address}'>{html.escape(study.key)}</a>"),
            ", ".join(methods[:6]) + (f" and {len(methods) - 6} more" if len(methods) > 6 else ""),
            str(len(study.runs)), str(finished), state_cell(study_state(study)),
        ])  # fmt: skip
    return Table([head, *lines], list(index.studies))


def study_state(study: Study) -> str:
    """The state of a comparison: of its own process, else of its runs."""
    states = {row.state for row in study.runs}
    if study.running or "running" in states:
        return "running"
    if not states:
        return "starting"
    if study.race:  # runs that left the race stay where they paused
        return "finished" if study.answered else "stopped"
    return "finished" if states == {"finished"} else "failed" if "failed" in states else "stopped"


# ---- curves ----------------------------------------------------------------------------------------------------------


def curves_section(index: Index, rows: Sequence[RunRow], x: str, selected: bool) -> list[page.Section]:
    choices = " ".join(
        f"<a href='?{urlencode({'x': name})}' data-x='{name}'{' class=chosen' * (name == x)}>{name}</a>"
        for name in AXES
    )
    curves, without = named_curves(index, rows, x)
    figure = plots.lines(
        f"{rows[0].headline.name if rows else 'headline'} over {x}", AXES[x], rows[0].headline.name if rows else "",
        curves,
    )  # fmt: skip
    notes = [] if selected else ["Select runs in the table to draw others."]
    if without:
        notes.append(f"No {x} recorded: {', '.join(without)}. `--diagnose cost` counts them.")
    return [
        ("axis", ("html", f"<p class='note axis'>over {choices}</p>")),
        ("lines", figure),
        *([("curves-note", "\n".join(notes))] if notes else []),
    ]


def named_curves(index: Index, rows: Sequence[RunRow], x: str) -> tuple[list[Any], list[str]]:
    """(name, number of the method, x, y) of each run with a curve, and the names of those that have none over this axis."""
    counted = Counter(row.method for row in rows)
    curves, without = [], []
    for row in rows:
        name = row.method if counted[row.method] == 1 else long_name(row)
        along, values = kept_curve(index, row, x)
        if values:
            curves.append((name, index.number(row.method), along, values))
        elif row.done:
            without.append(name)
    return curves, without


def long_name(row: RunRow) -> str:
    """The name of one of several runs of a method. Folders of comparisons have the method in their own names."""
    folder = row.key.rpartition("/")[2]
    return folder if safe(row.method) in folder else f"{row.method} ({folder})"


def kept_curve(index: Index, row: RunRow, x: str) -> tuple[list[float], list[float]]:
    """The curve of a run, read again when the run changed."""
    stamp, place = index.stamp(row.key), (row.key, x)
    if place not in index.curves or index.curves[place][0] != stamp:
        index.curves[place] = stamp, curve(row, x)
    return index.curves[place][1]


def curve(row: RunRow, x: str = "rounds") -> tuple[list[float], list[float]]:
    """The headline metric of a run over rounds, seconds or bytes. Empty where the record has none."""
    try:
        with reading(row.path) as query:
            found = query(
                "SELECT round, AVG(value) FROM metrics WHERE stage=? AND data=? AND metric=? GROUP BY round ORDER BY round",
                (row.headline.stage, row.headline.data, row.headline.metric),
            )
            along = axis_values(query, x)
    except (OSError, BadRequest):
        return [], []
    pairs = [(along.get(round), value) for round, value in found if value is not None]
    known = [(float(place), float(value)) for place, value in pairs if place is not None]
    kept = [known[place] for place in plots.kept_places(len(known))]
    return [place for place, _ in kept], [value for _, value in kept]


def axis_values(query: Query, x: str) -> dict[int, float]:
    """By round: its number from 1, or the seconds or bytes up to its end."""
    rounds = query("SELECT round, seconds FROM rounds ORDER BY round")
    if x == "rounds":
        return {round: round + 1 for round, _ in rounds}
    if x == "seconds":
        return dict(zip([round for round, _ in rounds], accumulate(seconds or 0.0 for _, seconds in rounds)))
    for text in BYTES:
        if found := sorted(query(text)):
            return dict(zip([round for round, _ in found], accumulate(sent or 0.0 for _, sent in found)))
    return {}
