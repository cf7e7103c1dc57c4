"""The page of one run: how far it is, its stages, where the time goes, weights, who was left out, what each part noted."""

from __future__ import annotations

import html
import shlex
from dataclasses import dataclass
from typing import Any

from undrift.cli.show import summarize
from undrift.core.errors import BadRequest
from undrift.core.words import clock
from undrift.experiment.options import FIELDS
from undrift.experiment.summary import privacy
from undrift.experiment.tables import as_text
from undrift.live.records import STATES, Query, RunRow
from undrift.live.runs_view import curve
from undrift.report import page, plots, run_page
from undrift.report.traces import traces
from undrift.store.record import client_names, reading

EVENTS = 50


@dataclass(frozen=True)
class Reader:
    """What the summaries read a record through."""

    all: Query


def sections(row: RunRow, number: int, quick: bool = False) -> list[page.Section]:
    """The sections of the page; with `quick` those that are made anew most often."""
    if row.state == "broken":
        return [("about", f"This folder cannot be shown: {row.why}.")]
    try:
        with reading(row.path) as query:
            first = opening(row, number, query)
            return first if quick else [*first, *everything(row, query)]
    except (OSError, BadRequest) as error:
        return [("about", f"The record cannot be read now: {error}.")]


def opening(row: RunRow, number: int, query: Query) -> list[page.Section]:
    shown: list[page.Section] = [("facts", ("html", facts(row, query)))]
    if row.resume:
        why = f"It failed: {row.why}\n" if row.why else ""
        shown.append(
            (
                "resume",
                [("why", f"{why}It is not running. This continues it:"), ("resume-command", ("pre", row.resume))],
            )
        )
    along, values = curve(row)
    name = row.headline.name
    drawn = plots.lines(name, "round", name, [(row.method, number, along, values)])
    return [*shown, ("headline", drawn) if values else ("headline", "No round has been evaluated yet.")]


def facts(row: RunRow, query: Query) -> str:
    """The numbers at the top, as boxes."""
    statement = privacy(query)
    boxes = [
        (f"{STATES[row.state]} {row.state}", "state"),
        (row.headline.shown(row.value), row.headline.name),
        (f"{row.done} of {row.rounds}", "rounds"),
        ("—" if row.left is None else clock(row.left), "left"),
        (f"{row.seconds / row.done:.2f} s" if row.done else "—", "a round"),
        (clock(row.seconds), "so far"),
    ]
    if statement is not None:
        spent = "∞" if statement["epsilon"] is None else f"{statement['epsilon']:.3g}"
        boxes.append((f"{spent}", f"ε at δ = {statement['delta']:g}"))
    inside = "".join(
        f"<div class='fact'><b>{html.escape(value)}</b><span>{html.escape(what)}</span></div>" for value, what in boxes
    )
    what = html.escape(f"{row.method} on {row.data}, seed {row.seed}")
    bar = f"<progress max='{max(1, row.rounds)}' value='{row.done}' aria-label='rounds done'></progress>"
    return f"<p class='note'>{what}</p><div class='facts'>{inside}</div>{bar}"


def everything(row: RunRow, query: Query) -> list[page.Section]:
    """What the report of a run shows, and its configuration, events and commands."""
    thresholds = [float(number) for number in row.options.get("thresholds", [])]
    options = {**row.options, "method": row.method, "thresholds": thresholds}
    recorded: list[page.Section] = []
    if row.done:
        recorded = [(f"r-{section[0]}", *section[1:]) for section in run_page.sections(
            row.method, query, summarize(Reader(query), options), thresholds)]  # type: ignore[arg-type]  # fmt: skip
    noted: list[page.Section] = [(f"n-{section[0]}", *section[1:]) for section in traces(query).sections()]
    asked = html.escape(row.key)
    opens = (
        "<details><summary>Samples per client and class</summary>"
        f"<div data-labels='{asked}'><p class='note'>The data are dealt again, in a process of its own …</p></div></details>"
    )
    return [
        ("recorded", recorded, "Stages, clients and time") if recorded else ("recorded", "No round has ended yet."),
        ("labels", ("html", opens), "Clients and classes"),
        *([("notes", noted, "What each part noted")] if noted else []),
        ("events", events(query), "Events"),
        ("configuration", configuration(row), "Configuration"),
        ("commands", ("pre", commands(row)), "Commands"),
    ]


def events(query: Query) -> Any:
    """The newest events first."""
    names = client_names(query)
    rows = query("SELECT round, client, kind, detail FROM events ORDER BY rowid DESC LIMIT ?", (EVENTS,))
    lines = [
        [str(round), "—" if client is None else names.short(client), kind, str(detail)[:300]]
        for round, client, kind, detail in rows
    ]
    return [["round, from 0", "client", "kind", "detail"], *lines] if lines else "None."


def configuration(row: RunRow) -> list[list[str]]:
    known = [key for key in ("parts", *FIELDS) if row.options.get(key) is not None]
    return [["option", "value"], *[[key, as_text(row.options[key])] for key in known]]


def commands(row: RunRow) -> str:
    place = shlex.quote(str(row.path))
    lines = ["# repeat it", f"undrift run {place}/run.toml", "# all figures in one file", f"undrift report {place}"]
    return "\n".join([*lines, *(["# continue it", row.resume] if row.resume else [])])
