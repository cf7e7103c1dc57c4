"""`undrift demo`: the main job in a minute, on the embedded data."""

from __future__ import annotations

import shutil
from pathlib import Path

import typer

METHODS = ("fedavg", "fednolowe", "flood", "scaffold", "fliu")


def add(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    out: str = typer.Option("runs/demo", "--out", help="where the runs and the page go"),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
    quiet: bool = typer.Option(False, "--quiet", help="no progress, no table"),
) -> None:
    """Plain averaging against the remedies on a skewed federation of handwritten digits."""
    from undrift.cli.compare import many, present
    from undrift.federation import federate
    from undrift.study import holdings

    settings = {"data": "digits", "partition": "dirichlet(0.1)", "clients": 20, "cohort": 0.5, "rounds": 40}
    if not quiet:
        federation = federate(settings["data"], settings["partition"], 20)
        typer.echo(
            "Twenty sites share a model for handwritten digits. Each has seen only some of the ten digits:\n", err=json
        )
        typer.echo(holdings.terminal(federation, holdings.describe(federation)) + "\n", err=json)
    if Path(out).is_dir() and (Path(out) / "index.html").exists():
        shutil.rmtree(out)
    rows, folder = many([(name, {}) for name in METHODS], dict(settings), out, 1, None, quiet, None)
    present(rows, folder, json, quiet, "Undrift demo: averaging against the remedies")
