"""`undrift deploy status`: a deployment's run at the server, finished or under way."""

from __future__ import annotations

import json
from typing import Any

from undrift.deploy import spec as specs
from undrift.deploy.sites import PART
from undrift.experiment.folders import run_folder
from undrift.store.record import rows_of


def status(run: str) -> dict[str, Any]:
    folder = run_folder(run)
    spec = specs.read(folder)
    done = rows_of(folder, "SELECT COUNT(*), MAX(round) FROM rounds")[0]
    sites = []
    for number, site in enumerate(spec.everybody):
        notes = rows_of(folder, "SELECT round, name, value FROM notes WHERE part = ? AND client = ?", (PART, number))
        answered = sorted({round for round, _, _ in notes})
        values = {
            name: [json.loads(v) for _, n, v in notes if n == name] for name in ("seconds", "working", "bytes_up")
        }
        failures = rows_of(folder, "SELECT round, kind FROM events WHERE client = ? ORDER BY rowid", (number,))
        sites.append({
            "site": site, "number": number, "trains": site in spec.sites, "rounds_answered": len(answered),
            "last_round": answered[-1] if answered else None, "left_out": len(failures),
            "last_trouble": f"{failures[-1][1]} in round {failures[-1][0]}" if failures else None,
            **{f"mean_{name}": sum(found) / len(found) if found else None for name, found in values.items()},
            "accuracy": {stage: own_accuracy(folder, number, stage) for stage in ("G", "L1", "L2")},
        })  # fmt: skip
    events = rows_of(folder, "SELECT round, client, kind, detail FROM events ORDER BY rowid")
    return {
        "run": str(folder), "method": str(spec.table["method"]), "rounds": done[0], "planned": spec.options.rounds,
        "sites": sites, "events": [dict(zip(("round", "client", "kind", "detail"), row, strict=True)) for row in events],
    }  # fmt: skip


def own_accuracy(folder: Any, number: int, stage: str) -> float | None:
    found = rows_of(
        folder, "SELECT value FROM metrics WHERE client = ? AND stage = ? AND data = 'own' AND metric = 'accuracy' "
        "ORDER BY round DESC LIMIT 1", (number, stage),
    )  # fmt: skip
    return found[0][0] if found else None


def page(found: dict[str, Any]) -> str:
    from undrift.experiment.tables import text_table

    rows = [["site", "answered", "last", "seconds", "working", "bytes up", "G", "L1", "L2", "last trouble"]]
    for site in found["sites"]:
        accuracies = [percent(site["accuracy"][stage]) for stage in ("G", "L1", "L2")]
        rows.append([
            site["site"] if site["trains"] else f"{site['site']} (judges)", str(site["rounds_answered"]),
            shown(site["last_round"], "d"), shown(site["mean_seconds"], ".1f"), shown(site["mean_working"], ".2f"),
            shown(site["mean_bytes_up"], ",.0f"), *accuracies, site["last_trouble"] or "—",
        ])  # fmt: skip
    lines = [
        f"{found['run']}: {found['method']}, {found['rounds']} of {found['planned']} rounds",
        "",
        text_table(rows, words=(0, 9)),
        "",
    ]
    lines.append("G, L1, L2: accuracy on the site's own test part, as last judged; seconds: until the answer was here.")
    for event in found["events"][-12:]:
        lines.append(f"round {event['round']}: {event['kind']}: {event['detail']}")
    return "\n".join(lines)


def shown(value: Any, form: str) -> str:
    return "—" if value is None else format(value, form)


def percent(value: float | None) -> str:
    return "—" if value is None else f"{100 * value:.2f}"
