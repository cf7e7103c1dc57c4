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
) -> None:
    """Write one or more runs as an HTML page. It is self-contained: tables, curves, clients, weights, configuration, commands."""
    from undrift.cli import note
    from undrift.experiment.folders import find_folder
    from undrift.report.report import write
    from undrift.store.own_files import refuse_links

    for folder in map(find_folder, runs):
        if folder.is_dir():  # the page is written into it
            refuse_links(folder)
    path = Path(out) if out else find_folder(runs[0]) / "report.html" if len(runs) == 1 else Path("report.html")
    if path.is_dir():
        path = path / "report.html"
    try:
        note(write(path, list(runs), title))
    except OSError as error:
        raise BadRequest(f"{path} cannot be written: {error.strerror or error}; choose another --out") from None
    typer.echo(f"report: {path}")
