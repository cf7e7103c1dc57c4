"""`undrift bench`: speed compared with the bare training loop."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer
from annotated_types import Gt, Le

from undrift.core.errors import unknown

DAY = 86_400.0


def add(app: typer.Typer) -> None:
    app.command("bench")(bench)


def bench(
    works: list[str] = typer.Argument(
        None, help="which workloads: a (MLP), b (CNN), c (logistic regression), d (a small MLP) [all]"
    ),
    seconds: float = typer.Option(30.0, "--seconds", help="measure each workload for at least this long"),
    workers: int | None = typer.Option(None, "--workers", help="number of worker processes [one per core]"),
    profile: bool = typer.Option(False, "--profile", help="show where the time of a round goes"),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
) -> None:
    """Measure the speed of a round. It is relative to the bare training loop on the same clients, measured in pairs."""
    from undrift.bench import measure
    from undrift.core.schema import Workers, checked
    from undrift.experiment.tables import text_table

    checked(Annotated[float, Gt(0), Le(DAY)], "--seconds", seconds)
    checked(Workers | None, "--workers", workers)
    known, data = measure.all_works()
    chosen = works or list(known)
    for name in chosen:
        if name not in known:
            raise unknown("workload", name, known)
    if not json:
        typer.echo(f"data: {data}; ratios are medians over pairs, below 1 is faster than the bare loop")
    if profile:
        shares = {name: measure.profile(known[name], workers) for name in chosen}
        if json:
            typer.echo(json_module.dumps({"profile": shares}))
            return
        parts = [key for key in next(iter(shares.values())) if key not in ("seconds", "clients")]
        rows = [["work", "s/round", *parts]]
        rows += [[n, f"{s['seconds']:.3f}", *(f"{100 * s[p]:.1f} %" for p in parts)] for n, s in shares.items()]
        typer.echo(text_table(rows))
        for name, share in shares.items():
            typer.echo(f"({name}) {share['clients']}")
        return
    found = [
        measure.measure(known[name], workers, seconds, say=lambda line: typer.echo(line, err=True)) for name in chosen
    ]
    if json:
        typer.echo(json_module.dumps({"works": found, "data": data}))
        return
    rows = [["work", "bare s", "ours s", "ratio", "spread", "with evaluation", "pairs"]]
    rows += [
        [
            f["name"],
            f"{f['bare']:.3f}",
            f"{f['seconds']:.3f}",
            f"{f['ratio']:.3f}",
            f"{f['spread']:.3f}",
            f"{f['ratio_evaluated']:.3f}",
            str(f["pairs"]),
        ]
        for f in found
    ]
    typer.echo(text_table(rows))
