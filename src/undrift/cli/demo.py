"""`undrift demo`: the main job in a minute, on the embedded data."""

from __future__ import annotations

import shutil
from pathlib import Path

import typer

METHODS = (
    "fedavg", "fedavg-uniform", "fednolowe", "bound", "fedbss", "flood", "fliu", "fedbss+scaffold@fednolowe",
)  # fmt: skip
SETTINGS = {
    "data": "digits", "partition": "dirichlet(0.1)", "clients": 20, "noise": "symmetric(0.3)", "cohort": 0.5,
    "rounds": 40, "epochs": 5,
}  # fmt: skip


def add(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    out: str = typer.Option("runs/demo", "--out", help="where the runs and the page go"),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
    quiet: bool = typer.Option(False, "--quiet", help="no progress, no table"),
) -> None:
    """Plain averaging against the remedies on a skewed, noisy federation of handwritten digits."""
    from undrift.cli.compare import carried_out, present
    from undrift.federation import federate
    from undrift.study import holdings
    from undrift.study.compare import Entry, home, planned

    if not quiet:
        federation = federate(SETTINGS["data"], SETTINGS["partition"], 20, noise=SETTINGS["noise"])
        typer.echo(
            "Twenty sites share a model for handwritten digits. Each has seen only some of the ten digits,\n"
            "and three labels in ten are wrong:\n",
            err=json,
        )
        typer.echo(holdings.terminal(federation, holdings.describe(federation)) + "\n", err=json)
    if Path(out).is_dir() and (Path(out) / "index.html").exists():
        shutil.rmtree(out)
    asked = planned([Entry(name) for name in METHODS], SETTINGS, 1, None, {})
    present(carried_out(asked, home(asked, out, resume=False), quiet, None), json, quiet,
            "Undrift demo: averaging against the remedies")  # fmt: skip
