"""The page of a deployment: the sites, who is awaited, their metrics, what happened. No sample and no class is named."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest
from undrift.core.words import clock
from undrift.deploy import monitor, status
from undrift.live.records import STATES, Query, RunRow
from undrift.report import page, plots
from undrift.report.page import Table
from undrift.store.record import reading

EVENTS = 60
SIGNS = {"answered": "✓", "awaited": "…", "late": "■", "refused": "✗", "absent": "○", "left out": "✗"}
CLASSES = {
    "answered": "finished",
    "awaited": "running",
    "late": "stopped",
    "absent": "stopped",
}  # colours of the states


def sections(row: RunRow, quick: bool = False) -> list[page.Section]:
    """The sections of the page; with `quick` those that are made anew most often."""
    if row.state == "broken":
        return [("about", f"This folder cannot be shown: {row.why}.")]
    try:
        table = row.options["deploy"]
        training = [str(site) for site in table.get("sites", [])]
        names = [*training, *(str(site) for site in table.get("evaluate_only") or [])]
        awaited = monitor.awaited_now(row.path)
        with reading(row.path) as query:
            first: list[page.Section] = [
                ("facts", ("html", facts(row, table, awaited, len(training)))),
                ("sites", sites_table(row, query, names, training, awaited), "Sites"),
            ]
            return first if quick else [*first, *rest(row, query, names)]
    except (OSError, BadRequest) as error:
        return [("about", f"The record cannot be read now: {error}.")]


def facts(row: RunRow, table: dict[str, Any], awaited: dict[str, Any] | None, count: int) -> str:
    quorum = table.get("quorum", 0.5)
    needed = f"{100 * quorum:.0f} %" if isinstance(quorum, float) else f"{quorum} of {count}"
    deadline = float(table.get("deadline", 600.0))
    running = awaited is not None
    boxes = [
        (f"{STATES['running']} running" if running else f"{STATES[row.state]} {row.state}", "server"),
        (row.headline.shown(row.value), row.headline.name),
        (f"{row.done} of {row.rounds}", "rounds"),
        (needed, "quorum of a round's sites"),
        (clock(deadline) if deadline >= 10 else f"{deadline:g} s", "deadline of a round"),
        (waiting(awaited), "awaited now"),
    ]
    inside = "".join(
        f"<div class='fact'><b>{html.escape(value)}</b><span>{html.escape(what)}</span></div>" for value, what in boxes
    )
    bar = f"<progress max='{max(1, row.rounds)}' value='{row.done}' aria-label='rounds done'></progress>"
    return f"<p class='note'>{html.escape(row.method)}</p><div class='facts'>{inside}</div>{bar}"


def waiting(awaited: dict[str, Any] | None) -> str:
    if awaited is None or not awaited["sites"]:
        return "nobody"
    until = time.strftime("%H:%M:%S", time.localtime(float(awaited["until"])))
    return f"{len(awaited['sites'])} of the sites, until {until}"


def sites_table(
    row: RunRow, query: Query, names: Sequence[str], training: Sequence[str], awaited: dict[str, Any] | None
) -> Table:
    head = [
        "site",
        "state",
        "last sentence",
        "replies",
        "last round",
        "left out",
        "seconds",
        "bytes up",
        "G",
        "L1",
        "L2",
    ]
    path, headline = row.path, row.headline.of
    last = dict(last_replies(path))
    lines = []
    for report in status.site_reports(path, names, training, headline):
        site, number = report["site"], report["number"]
        state = site_state(site, last.get(site, ""), awaited)
        said = query("SELECT round, kind, detail FROM events WHERE client = ? ORDER BY rowid DESC LIMIT 1", (number,))
        sentence = f"round {said[0][0]}: {said[0][1]}: {said[0][2]}" if said else "—"
        lines.append([
            site if report["trains"] else f"{site} (evaluates)",
            ("html", f"<span class='state {CLASSES.get(state, 'failed')}'>{SIGNS[state]} {html.escape(state)}</span>"),
            sentence[:200], str(report["rounds_answered"]), "—" if report["last_round"] is None else str(report["last_round"]),
            str(report["left_out"]), status.shown(report["mean_seconds"], ".1f"), status.shown(report["mean_bytes_up"], ",.0f"),
            *(headline.show(report["headline"][stage]) for stage in ("G", "L1", "L2")),
        ])  # fmt: skip
    return Table([head, *lines], list(names))


def last_replies(path: Path) -> list[tuple[str, str | None]]:
    """(site, failure of its reply) of every reply in the stream, in their order."""
    found = []
    try:
        lines = (path / monitor.FILE).read_bytes().splitlines()
    except OSError:
        return []
    for line in lines:
        if b'"reply"' in line:
            try:
                entry = json.loads(line)
                if entry["kind"] == "reply":
                    found.append((str(entry["site"]), entry["failure"]))
            except (ValueError, KeyError, TypeError):  # half-written, or torn by a crash
                continue
    return found


def site_state(site: str, failure: Any, awaited: dict[str, Any] | None) -> str:
    """`failure` is that of the last reply; "" if there was none yet."""
    if awaited is not None and site in awaited["sites"]:
        return "awaited"
    if failure is None:
        return "answered"
    return {"late": "late", "absent": "absent", "": "absent", "broken": "refused"}.get(str(failure), "left out")


def rest(row: RunRow, query: Query, names: Sequence[str]) -> list[page.Section]:
    shown: list[page.Section] = []
    for stage, what in (("G", "global model"), ("L1", "on receipt"), ("L2", "after training")):
        curves = []
        for number, name in enumerate(names):
            found = query(
                "SELECT round, value FROM metrics WHERE stage=? AND data='own' AND metric=? AND client=? ORDER BY round",
                (stage, row.headline.metric, number),
            )
            if found:
                curves.append((name, number, [round + 1 for round, _ in found], [value for _, value in found]))
        if curves:
            title = f"{stage}: {what}, {row.headline.metric} on each site's own test part"
            shown.append((f"stage-{stage.lower()}", plots.lines(title, "round", row.headline.metric, curves)))
    if (times := plots.round_times(query)) is not None:
        shown.append(("times", times))
    events = query("SELECT round, client, kind, detail FROM events ORDER BY rowid DESC LIMIT ?", (EVENTS,))
    lines = [
        [str(round), "—" if client is None or client >= len(names) else names[client], kind, str(detail)[:300]]
        for round, client, kind, detail in events
    ]
    table: Any = [["round", "site", "kind", "what happened"], *lines] if lines else "None."
    numbered = ("numbered", "Rounds in the tables are numbered from 0, as in the log, the status and the record.")
    return [
        ("metrics", shown, "Metrics of the sites") if shown else ("metrics", "No site was evaluated yet."),
        ("events", [("events-table", table), numbered], "Events"),
    ]
