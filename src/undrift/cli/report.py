"""`undrift report`: runs as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path

import typer

from undrift.core.errors import BadRequest


def add(app: typer.Typer) -> None:
    app.command("report")(report)


def report(
    runs: list[str] = typer.Argument(..., help="folders of runs, or of a comparison"),
    out: str | None = typer.Option(
        None, "--out", help="file to write [RUN/report.html, or ./report.html for several runs]"
    ),
    title: str | None = typer.Option(None, "--title", help="title of the page"),
    rank_by: str | None = typer.Option(
        None, "--rank-by", help='column to rank by, such as "L1 Acc(L)" [G, or what all methods have]'
    ),
    latex: str | None = typer.Option(None, "--latex", help="also write the results as a LaTeX table into this file"),
    csv: str | None = typer.Option(None, "--csv", help="also write the results as CSV, a line per run, into this file"),
    figures: str | None = typer.Option(
        None, "--figures", help="also write the figures as SVG and PDF into this folder"
    ),
) -> None:
    """Write one or more runs as an HTML page. It is self-contained: tables, curves, clients, weights, configuration, commands."""
    from undrift.cli import note
    from undrift.experiment.folders import find_folder
    from undrift.report.report import write
    from undrift.store.own_files import refuse_links
    from undrift.study.standings import rank_column

    rank_column([], rank_by)

    for folder in map(find_folder, runs):
        if folder.is_dir():  # the page is written into it
            refuse_links(folder)
    path = Path(out) if out else find_folder(runs[0]) / "report.html" if len(runs) == 1 else Path("report.html")
    if path.is_dir():
        path = path / "report.html"
    try:
        note(write(path, list(runs), title, rank_by))
    except OSError as error:
        raise BadRequest(f"{path} cannot be written: {error.strerror or error}; choose another --out") from None
    typer.echo(f"report: {path}")
    if latex or csv or figures:
        write_others(runs, rank_by, latex, csv, figures)


def write_others(runs: list[str], rank_by: str | None, latex: str | None, csv: str | None, figures: str | None) -> None:
    """The same results as files for a paper."""
    from undrift.report import export
    from undrift.report.report import for_paper
    from undrift.study.load_runs import load_runs

    loaded = load_runs(list(runs))
    rows = [run.row for run in loaded]
    for place, text in ((latex, export.latex(rows, rank_by)), (csv, export.csv_text(rows))):
        if place:
            try:
                Path(place).write_text(text)
            except OSError as error:
                raise BadRequest(f"{place} cannot be written: {error.strerror or error}; name another file") from None
            typer.echo(f"written: {place}")
    if figures:
        try:
            written = export.write_figures(Path(figures), for_paper(loaded, rank_by))
        except OSError as error:
            raise BadRequest(f"{figures} cannot be written: {error.strerror or error}; name another folder") from None
        typer.echo(f"written: {len(written)} figures in {figures}")
