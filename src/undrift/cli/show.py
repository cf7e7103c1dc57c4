"""`undrift show`: what a run did, in the terminal."""

from __future__ import annotations

import functools
import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from undrift.report.traces import Traces
    from undrift.store.record import Record

G_CURVE = "SELECT value FROM metrics WHERE stage='G' AND data='global' AND metric=? ORDER BY round"
LAST_DIAGNOSTICS = (
    "SELECT metric, data, value FROM metrics WHERE stage='G' AND client IS NULL AND data IN ('train', 'ood') AND round="
    "(SELECT MAX(round) FROM metrics WHERE stage='G' AND data IN ('train', 'ood')) ORDER BY rowid"
)
FIRST_EVENTS = "SELECT round, client, kind, detail FROM events ORDER BY rowid LIMIT 12"


def add(app: typer.Typer) -> None:
    app.command("show")(show)


def show(
    run: str = typer.Argument(..., help="folder of the run"),
    traces: bool = typer.Option(
        False, "--traces", help="notes of the parts over the rounds: scores, losses, weights …"
    ),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
    html: str | None = typer.Option(None, "--html", help="write a page with all figures of the run to this file"),
) -> None:
    """Show what a run did. Prints its method, accuracies, published protocols, diagnostics and failures."""
    from undrift.cli import note
    from undrift.core.errors import RunFailed
    from undrift.experiment.folders import run_folder
    from undrift.experiment.resume import open_run, open_store, sentence_if_damaged
    from undrift.experiment.run_file import run_file

    if json:
        result = open_run(run)
        note(result.damage)
        typer.echo(json_module.dumps(result.summary))
        return
    folder = run_folder(run)
    written = run_file(folder)
    store = open_store(folder, written, lock=False)
    try:
        fallbacks = store.newest(states=False)[1]
    except RunFailed as error:  # the record can be shown without a model
        fallbacks = [str(error)]
    damage = [*written.damage, *fallbacks, *store.damage()]
    note(damage)
    with sentence_if_damaged(folder, damage):
        print_run(folder, store.record, {**written.options, "about": written.about}, traces, html)
    store.close()


def print_run(folder: Path, record: Record, options: dict[str, Any], traces: bool, html: str | None) -> None:
    """Everything that `show` prints, and the page."""
    summary = summarize(record, options)
    typer.echo("\n".join(heading(folder, record, options, summary)))
    typer.echo("\n".join(tables(record, options, summary)))
    for line in diagnostics_and_events(record):
        typer.echo(line)
    if traces or html is not None:
        found = read_traces(folder)
        if traces:
            typer.echo(f"\n{found}")
        if html is not None:
            from undrift.report.page import write
            from undrift.report.run_page import sections

            figures = sections(options["method"], record.all, summary, options["thresholds"])
            write(Path(html), f"{options['method']} on {options['data']}", [*figures, *found.sections()])
            typer.echo(f"page: {html}", err=True)


def summarize(record: Record, options: dict[str, Any]) -> dict[str, Any]:
    """What the tables need, read from the record alone: the federation and the network are not built."""
    from undrift.experiment.summary import privacy, sites, stages_of, unseen
    from undrift.store.record import headline_of

    stages, headline = stages_of(record, options["thresholds"]), headline_of(record.all)
    stage_g = stages["G"]
    return {
        "method": options["method"],
        "seconds": record.all("SELECT COALESCE(SUM(seconds), 0) FROM rounds")[0][0],
        "accuracy": (stage_g or {}).get("accuracy"),
        "headline": headline.as_json((stage_g or {}).get(headline.name)),
        "stages": stages,
        "unseen": unseen(record),
        "privacy": privacy(record.all),
        "sites": sites(record.all),
    }


def heading(folder: Path, record: Record, options: dict[str, Any], summary: dict[str, Any]) -> list[str]:
    """The run in one line, its parts, and the curve of G's headline."""
    from undrift.report.traces import sparkline

    done = record.all("SELECT COUNT(*) FROM rounds")[0][0]
    lines = [
        f"{folder}: {options['method']} on {options['data']}, {done} of {options['rounds']} rounds, "
        f"{summary['seconds']:.1f} s"
    ]
    lines += [f"  {part}" for part in options.get("parts", [])]
    if how := options["about"].get("clients"):
        lines.append(f"  {how}")
    name = summary["headline"]["name"]
    curve = [value for (value,) in record.all(G_CURVE, (name,))]
    if curve:
        lines.append(f"\nG {name}  {sparkline(curve)}  {curve[0]:.3f} → {curve[-1]:.3f}")
    return lines


def tables(record: Record, options: dict[str, Any], summary: dict[str, Any]) -> list[str]:
    """The stages, unseen clients, and the numbers as papers print them."""
    from undrift.core.headline import Headline
    from undrift.evaluate.views import protocols
    from undrift.experiment.tables import legend, privacy_lines, site_table, stage_table, text_table, unseen_line

    lines = [f"\n{text_table(stage_table([summary]))}\n\n{legend(Headline.of(summary))}"]
    if newcomers := unseen_line(summary):
        lines.append(newcomers)
    lines += privacy_lines(summary)
    if sites := site_table([("", summary["sites"])], headline=Headline.of(summary)):
        lines.append(f"\n{text_table(sites)}")
    return [*lines, f"\n{text_table(protocols(record.all, options['thresholds']))}"]


def diagnostics_and_events(record: Record) -> list[str]:
    """The last diagnostics, and the first events: failures, resumes, stops."""
    from undrift.store.record import client_names

    lines = [f"{metric} ({data}): {value:.6g}" for metric, data, value in record.all(LAST_DIAGNOSTICS)]
    names = client_names(record.all)
    for round, client, kind, detail in record.all(FIRST_EVENTS):
        who = "" if client is None else f" {names.of(client)}"
        lines.append(f"round {round}:{who} {kind}: {detail}")
    return lines


def read_traces(folder: Path) -> Traces:
    """The traces of a run. Weights are compared with the clients' data only if the federation can be built again."""
    from undrift.core.errors import BadRequest
    from undrift.experiment.resume import rebuild_federation
    from undrift.report.traces import traces
    from undrift.store.record import rows_of

    federation = None
    try:
        federation = rebuild_federation(folder)
    except BadRequest as error:
        typer.echo(f"weights are not compared with the clients' data: {error}", err=True)
    return traces(functools.partial(rows_of, folder), federation)
