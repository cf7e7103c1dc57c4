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
from undrift.core.words import clock

if TYPE_CHECKING:
    from undrift.papers.scales import Scaled
    from undrift.study.verdict import Looks

FirstSeed = Annotated[int, Ge(0), Le(2**62)]
app = typer.Typer(help="Run the papers' experiments; our numbers beside the printed ones.", no_args_is_help=True)


@app.command("list")
def list_(json: bool = typer.Option(False, "--json", help="print JSON on stdout")) -> None:
    """List all presets, the data they need, and how long each scale takes."""
    from undrift import data
    from undrift.experiment.tables import text_table
    from undrift.papers import papers, scales
    from undrift.papers.minutes import minutes

    found = []
    for name in papers.names():
        preset = papers.load(name)
        needs = str(preset.options["data"])
        times = {scale: minutes(preset, scale) for scale in scales.SCALES}
        found.append({"name": name, "title": preset.title, "source": preset.source,
                      **{f"{scale}_minutes": took and round(took.minutes, 2) for scale, took in times.items()},
                      "measured": [scale for scale, took in times.items() if took and took.measured], "shares": preset.runs,
                      "data": needs, "here": data.available(needs), "rounds": preset.options["rounds"],
                      "runs": len(preset.rows) * len(preset.columns) * max(preset.seeds, preset.repeat) * preset.trains})  # fmt: skip
    if json:
        typer.echo(json_module.dumps(found))
        return
    rows = [["name", *scales.SCALES, "what"]]
    for one in found:
        size = f"{one['runs']} runs of {one['rounds']} rounds on {one['data']}{'' if one['here'] else ' (not here)'}"
        what = f"shares the runs of {one['shares']}" if one["shares"] else size if one["runs"] else "nothing is trained"
        shown = [time_shown(one[f"{scale}_minutes"], scale in one["measured"]) for scale in scales.SCALES]
        rows.append([one["name"], *shown, f"{one['title']}; {what}"])
    typer.echo(text_table(rows, words=(0, 4)))
    typer.echo(
        "\nOn two cores: from the seconds of kept runs, or an estimate (~). `undrift paper run NAME --estimate` says more for this machine."
    )


def time_shown(minutes: float | None, measured: bool) -> str:
    return "—" if minutes is None else f"{'' if measured else '~'}{clock(60 * minutes)}"


@app.command("show")
def show(
    name: str = typer.Argument(..., help="a preset, such as flood/table5"),
    scale: str = typer.Option("paper", "--scale", help="quick, mid or paper"),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
) -> None:
    """Show what a preset runs, the numbers the paper printed, and its claims."""
    from undrift.experiment.tables import text_table
    from undrift.papers import papers, scales
    from undrift.papers.reductions import condensed

    preset = papers.load(name)
    asked = scales.scaled(preset, scale)
    if json:
        typer.echo(json_module.dumps({
            "name": name, "title": preset.title, "source": preset.source, "scale": scale, "options": asked.options,
            "rows": [{"name": line.name, "method": line.method, "options": dict(line.options)} for line in asked.rows],
            "columns": [{"name": c.name, "options": dict(c.options)} for c in asked.columns],
            "values": [value.name for value in preset.values], "published": preset.published,
            "claims": [claim.sentence for claim in preset.claims], "reductions": list(asked.reductions),
            "left_out": list(asked.left_out), "shares": preset.runs,
            "untestable": [{"sentence": one.sentence, "why": one.why} for one in preset.untestable],
        }))  # fmt: skip
        return
    typer.echo(f"{name}: {preset.title}\n{preset.source}\n")
    if preset.runs:
        typer.echo(f"It shares the runs of {preset.runs}.\n")
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
        ("not testable here", [f"{one.sentence}: {one.why}" for one in preset.untestable]),
        ("less than the paper", [*condensed(asked.reductions), *asked.left_out]),
    ):
        if lines:
            typer.echo(f"\n{title}:\n" + "\n".join(f"  {line}" for line in lines))


@app.command("run")
def run(
    name: str = typer.Argument(..., help="a preset, such as flood/table5"),
    scale: str = typer.Option("quick", "--scale", help="quick, mid or paper"),
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
    missing: bool = typer.Option(False, "--missing", help="run only what --results does not hold yet"),
    estimate: bool = typer.Option(False, "--estimate", help="print the minutes of every cell, and run nothing"),
    out: str | None = typer.Option(None, "--out", help="folder of the runs [runs/NAME-SCALE-N]"),
    resume: bool = typer.Option(False, "--resume", help="finish the runs in --out"),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
    quiet: bool = typer.Option(False, "--quiet", help="no progress, no table"),
    log: str | None = typer.Option(None, "--log", help="append every round to this file"),
) -> None:
    """Run a preset: our numbers beside the printed ones, and whether the claims hold."""
    from undrift.cli.board import Board
    from undrift.papers import papers, scales
    from undrift.papers import run as paper_run
    from undrift.papers.reductions import condensed

    for what, kind, number in (
        ("--rounds", Count, rounds), ("--seeds", Seeds, seeds), ("--workers", Workers, workers), ("--seed", FirstSeed, seed),
    ):  # fmt: skip
        checked(kind | None, what, number)
    preset = papers.load(name)

    def scaled(count: int | None) -> Scaled:
        return scales.scaled(preset, scale, rounds=rounds, data=data, rows=row, columns=column, seeds=count, first=seed)

    asked = scaled(seeds)
    if missing and results is None:
        raise BadRequest("--missing needs the file with the finished runs: add --results FILE")
    if estimate:
        print_estimate(asked, workers, json)
        return
    looks = looks_at(until_clear, max(2, len(asked.seeds)), seed)
    folder = paper_run.preset_folder(asked, out, resume)
    if not quiet:
        stream = sys.stderr
        print(f"{name}: {preset.title} ({scale} scale)", file=stream)
        for sentence in (*condensed(asked.reductions), *asked.left_out):
            print(f"  less than the paper: {sentence}", file=stream)
    board = Board(quiet, log)
    try:
        kept = Path(results) if results else None
        if looks is None:
            rows, took = paper_run.run(asked, folder, board, workers, kept, missing)
        else:
            asked, rows, took = paper_run.run_until_clear(scaled, looks, folder, board, workers, kept, missing)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"stopped, nothing is lost; the same command with --out {folder} --resume finishes it"
        ) from None
    finally:
        board.end()
    present(asked, rows, took, folder, json, quiet)
    refuse_failed(rows)


def print_estimate(asked: Scaled, workers: int | None, json: bool) -> None:
    """The minutes of every cell and of all, from a dry run."""
    from undrift.engine.spawn import cores
    from undrift.experiment.tables import text_table
    from undrift.papers import run as paper_run

    minutes = paper_run.estimate(asked)
    at_once = workers or cores()
    total = sum(minutes.values()) / at_once
    if json:
        cells = [{"row": row, "column": column, "minutes": found} for (row, column), found in minutes.items()]
        typer.echo(json_module.dumps({"name": asked.preset.name, "scale": asked.scale, "seeds": len(asked.seeds),
                                      "cells": cells, "at_once": at_once, "minutes": total}))  # fmt: skip
        return
    columns = [column.name for column in asked.columns]
    table = [["minutes of a core", *columns]]
    table += [[row.name, *(f"{minutes[row.name, column]:.1f}" for column in columns)] for row in asked.rows]
    typer.echo(text_table(table))
    seeds = f"{len(asked.seeds)} seed{'s' * (len(asked.seeds) > 1)}"
    typer.echo(f"\n{len(minutes)} cells, {seeds} each: {clock(60 * total)} with {at_once} runs at the same time. This is training alone: "
               "evaluating, and what a method computes beside training, come on top.")  # fmt: skip


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
    from undrift.papers import claims, pages
    from undrift.papers import table as paper_table

    found = claims.outcomes(asked.preset, rows)
    page = pages.write_page(asked, rows, folder)
    figures = None if quiet else pages.write_figures(asked, rows, folder)
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
    figures: str | None = typer.Option(
        None, "--figures", help="write the figures, also of presets that share the runs, to this folder"
    ),
) -> None:
    """Print the tables and claims of saved results as Markdown."""
    from undrift.papers import pages
    from undrift.papers import results as paper_results

    if not file.strip():
        raise BadRequest(f"{file!r} is no file of results; give one that `paper run --results FILE` wrote")
    typer.echo(paper_results.results_markdown(Path(file)))
    if html is not None:
        pages.write_results_page(Path(file), Path(html))
        typer.echo(f"page: {html}", err=True)
    if figures is not None:
        made = pages.write_results_figures(Path(file), Path(figures))
        typer.echo(f"figures: {', '.join(map(str, made)) or 'the preset has none that need no settings'}", err=True)
