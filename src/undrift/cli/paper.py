"""`undrift paper`: the papers' experiments as presets, our numbers beside the printed ones."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from annotated_types import Ge, Le

from undrift.cli.compare import refuse_failed
from undrift.core.errors import BadRequest
from undrift.core.schema import Count, Seeds, Workers, checked

if TYPE_CHECKING:
    from undrift.papers.papers import Scaled
    from undrift.study.verdict import Looks

FirstSeed = Annotated[int, Ge(0), Le(2**62)]
app = typer.Typer(help="Run the papers' experiments; our numbers beside the printed ones.", no_args_is_help=True)


@app.command("list")
def list_(json: bool = typer.Option(False, "--json", help="print JSON on stdout")) -> None:
    """List all presets, the data they need, and how long the quick scale takes."""
    from undrift import data
    from undrift.experiment.tables import text_table
    from undrift.papers import papers

    found = []
    for name in papers.names():
        preset = papers.load(name)
        needs = str(preset.options["data"])
        found.append({"name": name, "title": preset.title, "source": preset.source, "quick_minutes": preset.minutes,
                      "data": needs, "here": data.available(needs), "rounds": preset.options["rounds"],
                      "runs": len(preset.rows) * len(preset.columns) * max(preset.seeds, preset.repeat)})  # fmt: skip
    if json:
        typer.echo(json_module.dumps(found))
        return
    rows = [["name", "quick", "paper scale", "what"]]
    for one in found:
        whole = f"{one['runs']} runs of {one['rounds']} rounds on {one['data']}" + (
            "" if one["here"] else " (not here)"
        )
        rows.append(
            [one["name"], "?" if one["quick_minutes"] is None else f"{one['quick_minutes']:g} min", whole, one["title"]]
        )
    typer.echo(text_table(rows, words=(0, 2, 3)))
    typer.echo("\nquick: minutes, measured on two cores. `undrift paper run NAME --scale quick` runs one.")


@app.command("show")
def show(
    name: str = typer.Argument(..., help="a preset, such as flood/table5"),
    scale: str = typer.Option("paper", "--scale", help="quick or paper"),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
) -> None:
    """Show what a preset runs, the numbers the paper printed, and its claims."""
    from undrift.experiment.tables import text_table
    from undrift.papers import papers

    preset = papers.load(name)
    asked = papers.scaled(preset, scale)
    if json:
        typer.echo(json_module.dumps({
            "name": name, "title": preset.title, "source": preset.source, "scale": scale, "options": asked.options,
            "rows": [{"name": line.name, "method": line.method, "options": dict(line.options)} for line in asked.rows],
            "columns": [{"name": c.name, "options": dict(c.options)} for c in asked.columns],
            "values": [value.name for value in preset.values], "published": preset.published,
            "claims": [claim.sentence for claim in preset.claims], "reductions": list(asked.reductions),
            "left_out": list(asked.left_out),
        }))  # fmt: skip
        return
    typer.echo(f"{name}: {preset.title}\n{preset.source}\n")
    if preset.about:
        typer.echo(preset.about + "\n")
    typer.echo("  ".join(f"{key}={value}" for key, value in asked.options.items()) + "\n")
    rows = [["row", "method", "own options"]]
    rows += [[line.name, line.method, " ".join(f"{k}={v}" for k, v in line.options.items())] for line in asked.rows]
    typer.echo(text_table(rows, words=(0, 1, 2)))
    for place, value in enumerate(preset.values):
        shown = [[line.name, *(preset.printed(line.name, c.name, place) for c in asked.columns)] for line in asked.rows]
        typer.echo(f"\nprinted: {value.name}\n" + text_table([["row", *(c.name for c in asked.columns)], *shown]))
    for title, lines in (
        ("claims", [claim.sentence for claim in preset.claims]),
        ("less than the paper", [*asked.reductions, *asked.left_out]),
    ):
        if lines:
            typer.echo(f"\n{title}:\n" + "\n".join(f"  {line}" for line in lines))


@app.command("run")
def run(
    name: str = typer.Argument(..., help="a preset, such as flood/table5"),
    scale: str = typer.Option("quick", "--scale", help="quick or paper"),
    rounds: int | None = typer.Option(
        None, "--rounds", help="another number of rounds; schedules keep their share of the run"
    ),
    data: str | None = typer.Option(None, "--data", help="another data set"),
    row: list[str] = typer.Option([], "--row", help="only this row; repeatable"),
    column: list[str] = typer.Option([], "--column", help="only this column; repeatable"),
    seeds: int | None = typer.Option(None, "--seeds", help="number of seeds, instead of the preset's"),
    until_clear: int | None = typer.Option(
        None, "--until-clear", help="add seeds until every claim is decided, at most to this number"
    ),
    seed: int = typer.Option(0, "--seed", help="first seed, to add seeds to earlier runs [0]"),
    workers: int | None = typer.Option(None, "--workers", help="number of runs at the same time [one per core]"),
    results: str | None = typer.Option(None, "--results", help="append one JSON line per finished run to this file"),
    out: str | None = typer.Option(None, "--out", help="folder of the runs [runs/NAME-SCALE-N]"),
    resume: bool = typer.Option(False, "--resume", help="finish the runs in --out"),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
    quiet: bool = typer.Option(False, "--quiet", help="no progress, no table"),
    log: str | None = typer.Option(None, "--log", help="append every round to this file"),
) -> None:
    """Run a preset: our numbers beside the printed ones, and whether the claims hold."""
    from undrift.cli.board import Board
    from undrift.papers import papers
    from undrift.papers import run as paper_run

    for what, kind, number in (
        ("--rounds", Count, rounds), ("--seeds", Seeds, seeds), ("--workers", Workers, workers), ("--seed", FirstSeed, seed),
    ):  # fmt: skip
        checked(kind | None, what, number)
    preset = papers.load(name)

    def scaled(count: int | None) -> Scaled:
        return papers.scaled(preset, scale, rounds=rounds, data=data, rows=row, columns=column, seeds=count, first=seed)

    asked = scaled(seeds)
    looks = looks_at(until_clear, max(2, len(asked.seeds)), seed)
    folder = paper_run.preset_folder(asked, out, resume)
    if not quiet:
        stream = sys.stderr
        print(f"{name}: {preset.title} ({scale} scale)", file=stream)
        for sentence in (*asked.reductions, *asked.left_out):
            print(f"  less than the paper: {sentence}", file=stream)
    board = Board(quiet, log)
    try:
        kept = Path(results) if results else None
        if looks is None:
            rows, took = paper_run.run(asked, folder, board, workers, kept)
        else:
            asked, rows, took = paper_run.run_until_clear(scaled, looks, folder, board, workers, kept)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"stopped, nothing is lost; the same command with --out {folder} --resume finishes it"
        ) from None
    finally:
        board.end()
    present(asked, rows, took, folder, json, quiet)
    refuse_failed(rows)


def looks_at(until_clear: int | None, first: int, seed: int) -> Looks | None:
    """When the results are looked at under --until-clear."""
    from undrift.study.verdict import Looks

    if until_clear is None:
        return None
    if seed:
        raise BadRequest(f"--until-clear starts at the first seed; leave out --seed {seed}")
    if until_clear <= first:
        raise BadRequest(
            f"--until-clear is the largest number of seeds, and {until_clear} is not more than the first {first}"
        )
    return Looks(first, until_clear)


def present(asked: Scaled, rows: list[dict[str, Any]], took: float, folder: Path, json: bool, quiet: bool) -> None:
    """Write the page, and print tables and claims (for people) or one JSON object (for scripts)."""
    from undrift.experiment.tables import text_table
    from undrift.papers import claims
    from undrift.papers import run as paper_run
    from undrift.papers import table as paper_table

    found = claims.outcomes(asked.preset, rows)
    page = paper_run.write_page(asked, rows, folder)
    figures = None if quiet else paper_run.write_figures(asked.preset, rows, folder)
    if not quiet:
        stream = sys.stderr if json else sys.stdout
        for title, table in paper_table.tables(asked.preset, rows):
            print(f"\n{title}\n{text_table(table)}", file=stream)
        if asked.reductions:
            print("\nThe printed numbers are not comparable: this run is smaller than the paper's.", file=stream)
        for verdict in found:
            print(f"\n{verdict.outcome.upper():5}  {verdict.claim.sentence}\n       {verdict.why}", file=stream)
        for lost in (row for row in rows if "failed" in row):
            print(f"\nfailed: {lost['row']}, {lost['column']}: {lost['failed']}", file=stream)
        where = f"{page}; figures: {figures}" if figures else str(page)
        print(f"\n{took:.1f} s; report: {where}", file=stream)
    if json:
        print(json_module.dumps({
            "name": asked.preset.name, "scale": asked.scale, "rows": rows, "seconds": took, "folder": str(folder),
            "comparable": not asked.reductions, "reductions": list(asked.reductions), "left_out": list(asked.left_out),
            "claims": [{"sentence": v.claim.sentence, "outcome": v.outcome, "why": v.why} for v in found],
        }))  # fmt: skip


@app.command("results")
def results(
    file: str = typer.Argument(..., help="a file that `paper run --results` wrote"),
    html: str | None = typer.Option(None, "--html", help="write tables and curves as a page to this file"),
) -> None:
    """Print the tables and claims of saved results as Markdown."""
    from undrift.papers import run as paper_run

    typer.echo(paper_run.results_markdown(Path(file)))
    if html is not None:
        paper_run.write_results_page(Path(file), Path(html))
        typer.echo(f"page: {html}", err=True)
