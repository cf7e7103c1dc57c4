"""`undrift deploy status`: a deployment's run at the server, finished or in progress. Rounds are numbered from 0, as in
the record and in the server's log."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undrift.core.headline import Headline
from undrift.deploy import monitor
from undrift.deploy.monitor import PART
from undrift.store.record import headline_of, rows_of


def status(run: str) -> dict[str, Any]:
    """The sites' replies, times, headlines and failures, and the run's events."""
    from undrift.deploy import spec as specs
    from undrift.experiment.folders import run_folder

    folder = run_folder(run)
    spec = specs.read(folder)
    rounds = rows_of(folder, "SELECT COUNT(*) FROM rounds")[0][0]
    headline = headline_of(functools.partial(rows_of, folder))
    events = rows_of(folder, "SELECT round, client, kind, detail FROM events ORDER BY rowid")
    return {
        "run": str(folder),
        "method": str(spec.table["method"]),
        "rounds": rounds,
        "planned": spec.options.rounds,
        "running": monitor.is_running(folder),
        "awaited": monitor.awaited_now(folder),
        "headline": {
            "name": headline.name,
            "better": headline.better,
            "title": headline.title,
            "percent": headline.percent,
        },
        "sites": site_reports(folder, spec.all_sites, spec.sites, headline),
        "events": [dict(zip(("round", "client", "kind", "detail"), row, strict=True)) for row in events],
    }


def site_reports(
    folder: Path, names: Sequence[str], training: Sequence[str], headline: Headline
) -> list[dict[str, Any]]:
    """One report per site, in the order of their numbers."""
    sites = []
    for number, site in enumerate(names):
        notes = rows_of(folder, "SELECT round, name, value FROM notes WHERE part = ? AND client = ?", (PART, number))
        replied = sorted({round for round, _, _ in notes})
        values = {
            name: [json.loads(v) for _, n, v in notes if n == name] for name in ("seconds", "working", "bytes_up")
        }
        failures = rows_of(folder, "SELECT round, kind FROM events WHERE client = ? ORDER BY rowid", (number,))
        report = {
            "site": site,
            "number": number,
            "trains": site in training,
            "rounds_answered": len(replied),
            "last_round": replied[-1] if replied else None,
            "left_out": len(failures),
            "last_trouble": f"{failures[-1][1]} in round {failures[-1][0]}" if failures else None,
            **{f"mean_{name}": sum(numbers) / len(numbers) if numbers else None for name, numbers in values.items()},
            "accuracy": {s: own_value(folder, number, s, "accuracy") for s in ("G", "L1", "L2")},
            "headline": {s: own_value(folder, number, s, headline.name) for s in ("G", "L1", "L2")},
        }
        sites.append(report)
    return sites


def own_value(folder: Any, number: int, stage: str, metric: str) -> float | None:
    query = (
        "SELECT value FROM metrics WHERE client = ? AND stage = ? AND data = 'own' AND metric = ? "
        "ORDER BY round DESC LIMIT 1"
    )
    rows = rows_of(folder, query, (number, stage, metric))
    return rows[0][0] if rows else None


def page(report: dict[str, Any]) -> str:
    """The status as text, with the last twelve events."""
    from undrift.experiment.tables import text_table

    headline = Headline.of(report)
    rows = [["site", "replies", "last round", "seconds", "working", "bytes up", "G", "L1", "L2", "last failure"]]
    for site in report["sites"]:
        values = [headline.show(site["headline"][stage]) for stage in ("G", "L1", "L2")]
        rows.append([
            site["site"] if site["trains"] else f"{site['site']} (evaluates)", str(site["rounds_answered"]),
            shown(site["last_round"], "d"), shown(site["mean_seconds"], ".1f"), shown(site["mean_working"], ".2f"),
            shown(site["mean_bytes_up"], ",.0f"), *values, site["last_trouble"] or "—",
        ])  # fmt: skip
    lines = [
        f"{report['run']}: {report['method']}, {report['rounds']} of {report['planned']} rounds",
        waiting(report),
        "",
        text_table(rows, words=(0, 9)),
        "",
    ]
    lines.append(f"G, L1, L2: last {headline.name} on the site's own test part; seconds: from the order to the reply.")
    for event in report["events"][-12:]:
        lines.append(f"round {event['round']}: {event['kind']}: {event['detail']}")
    return "\n".join(lines)


def waiting(report: dict[str, Any]) -> str:
    """Who is awaited now, in one line."""
    awaited = report["awaited"]
    if awaited is None:
        done = report["rounds"] >= report["planned"]
        return "all rounds are done; the server does not run now" if done else "the server does not run now"
    if not awaited["sites"]:
        return "the server runs; no site is awaited now"
    round = awaited["round"]
    what = "the handshake" if round is None else f"round {round}"
    if round is not None and round >= report["planned"]:
        what = "the evaluation after the last round"
    seconds, left = (f"{max(0.0, s):.0f} s" for s in (time.time() - awaited["since"], awaited["until"] - time.time()))
    return f"awaited now for {what}: {', '.join(awaited['sites'])}; since {seconds}, for at most {left} more"


def shown(value: Any, form: str) -> str:
    return "—" if value is None else format(value, form)
