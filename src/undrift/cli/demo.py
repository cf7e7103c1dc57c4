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
    "rounds": 30, "epochs": 5, "lr": 0.01,  # a rate at which all of them learn: FLOOD's weights multiply it
}  # fmt: skip
SEEDS = 3


def add(app: typer.Typer) -> None:
    app.command("demo")(demo)


def is_demo(folder: Path) -> bool:
    """Whether an earlier demo lies there, finished or not; nothing else is taken away."""
    from undrift.core.errors import BadRequest
    from undrift.study.comparison import read_comparison

    try:
        return tuple(entry.label for entry in read_comparison(folder).entries) == METHODS
    except BadRequest:
        return False


def demo(
    out: str = typer.Option("runs/demo", "--out", help="where the runs and the page go"),
    rounds: str | None = typer.Option(
        None, "--rounds", help=f"communication rounds [{SETTINGS['rounds']}]", metavar="VALUE"
    ),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
    quiet: bool = typer.Option(False, "--quiet", help="no progress, no table"),
) -> None:
    """Plain averaging against the remedies on a skewed, noisy federation of handwritten digits."""
    from undrift.cli.compare import carried_out, present
    from undrift.cli.settings import read
    from undrift.experiment.options import from_keywords
    from undrift.federation.dealing import federate
    from undrift.report import label_distribution
    from undrift.study.compare import comparison_folder, plan_comparison
    from undrift.study.comparison import MethodEntry

    settings = SETTINGS | ({} if rounds is None else read({"rounds": rounds}))
    from_keywords(settings)  # refuses bad ones before anything is shown or removed
    if not quiet:
        federation = federate(SETTINGS["data"], SETTINGS["partition"], 20, noise=SETTINGS["noise"])
        typer.echo(
            "Twenty sites share a model for handwritten digits. Most have seen few of the ten digits often,\n"
            "and three labels in ten are wrong. Who holds what, in the first of three deals:\n",
            err=json,
        )
        typer.echo(label_distribution.terminal(federation, label_distribution.describe(federation)) + "\n", err=json)
    if is_demo(Path(out)):
        shutil.rmtree(out)
    asked = plan_comparison([MethodEntry(name) for name in METHODS], settings, SEEDS, None, {})
    present(carried_out(asked, comparison_folder(asked, out, resume=False), quiet, None), json, quiet,
            "Undrift demo: averaging against the remedies")  # fmt: skip
