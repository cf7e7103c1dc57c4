"""`undrift show`: the essence of a run in the terminal."""

from __future__ import annotations

import functools
import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from undrift.report.traces import Traces


def add(app: typer.Typer) -> None:
    app.command("show")(show)


def show(
    run: str = typer.Argument(..., help="the run's folder"),
    traces: bool = typer.Option(
        False, "--traces", help="what the parts saw: scores, losses, weights … over the rounds"
    ),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
    html: str | None = typer.Option(None, "--html", help="write a page with every figure the record can give"),
) -> None:
    """What a run did: method, stages, curve, published protocols, who was left out."""
    from undrift.evaluate.views import protocols
    from undrift.experiment.folders import run_folder
    from undrift.experiment.run_toml import read_toml
    from undrift.experiment.summary import client_stage, global_stage, unseen
    from undrift.experiment.tables import legend, stage_table, text_table, unseen_line
    from undrift.report.traces import sparkline
    from undrift.store.record import Record, rows_of

    folder = run_folder(run)
    options = read_toml(folder / "run.toml")
    if json:
        from undrift.experiment.resume import load

        typer.echo(json_module.dumps(load(run).summary))
        return
    record = Record(folder / "run.sqlite", read_only=True)
    done, seconds = record.all("SELECT COUNT(*), COALESCE(SUM(seconds), 0) FROM rounds")[0]
    whole = global_stage(record)
    summary: dict[str, Any] = {
        "method": options["method"], "seconds": seconds, "accuracy": (whole or {}).get("accuracy"),
        "stages": {"G": whole, **{s: client_stage(record, s, options["thresholds"]) for s in ("L1", "L2")}},
        "unseen": unseen(record),
    }  # fmt: skip
    typer.echo(
        f"{folder}: {options['method']} on {options['data']}, {done} of {options['rounds']} rounds, {seconds:.1f} s"
    )
    for part in options.get("parts", []):
        typer.echo(f"  {part}")
    curve = [
        v
        for (v,) in rows_of(
            folder, "SELECT value FROM metrics WHERE stage='G' AND data='global' AND metric='accuracy' ORDER BY round"
        )
    ]
    if curve:
        typer.echo(f"\nG accuracy  {sparkline(curve)}  {curve[0]:.3f} → {curve[-1]:.3f}")
    typer.echo(f"\n{text_table(stage_table([summary]))}\n\n{legend()}")
    if newcomers := unseen_line(summary):
        typer.echo(newcomers)
    typer.echo(f"\n{text_table(protocols(record.all, options['thresholds']))}")
    for metric, data, value in record.all(
        "SELECT metric, data, value FROM metrics WHERE stage='G' AND client IS NULL AND data IN ('train', 'ood') AND round="
        "(SELECT MAX(round) FROM metrics WHERE stage='G' AND data IN ('train', 'ood')) ORDER BY rowid"
    ):
        typer.echo(f"{metric} ({data}): {value:.6g}")
    for round, client, kind, detail in record.all(
        "SELECT round, client, kind, detail FROM events ORDER BY rowid LIMIT 12"
    ):
        who = "" if client is None else f" client {client}"
        typer.echo(f"round {round}:{who} {kind}: {detail}")
    if traces or html is not None:
        found = seen(folder)
        if traces:
            typer.echo(f"\n{found}")
        if html is not None:
            from undrift.report.page import write
            from undrift.report.run_page import sections

            drawn = sections(options["method"], record.all, summary, options["thresholds"])
            write(Path(html), f"{options['method']} on {options['data']}", [*drawn, *found.sections()])
            typer.echo(f"page: {html}", err=True)
    record.close()


def seen(folder: Path) -> Traces:
    """The run's traces; without the weights against what the clients hold where the federation cannot be made again."""
    from undrift.core.errors import BadRequest
    from undrift.experiment.resume import remade
    from undrift.report.traces import traces
    from undrift.store.record import rows_of

    federation = None
    try:
        federation = remade(folder, None, None, None).federation
    except BadRequest as error:
        typer.echo(f"weights are not shown against what the clients hold: {error}", err=True)
    return traces(functools.partial(rows_of, folder), federation)
