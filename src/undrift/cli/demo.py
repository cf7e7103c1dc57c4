"""`undrift demo`: a comparison on the built-in data, in a minute."""

from __future__ import annotations

import contextlib
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
    """Whether the folder is an earlier demo, finished or not. Nothing else is ever removed."""
    from undrift.core.errors import BadRequest
    from undrift.study.comparison import read_comparison

    try:
        return tuple(entry.label for entry in read_comparison(folder).entries) == METHODS
    except BadRequest:
        return False


def demo(
    out: str = typer.Option("runs/demo", "--out", help="folder of the runs and the page"),
    rounds: str | None = typer.Option(
        None, "--rounds", help=f"communication rounds [{SETTINGS['rounds']}]", metavar="VALUE"
    ),
    watch: bool = typer.Option(False, "--watch", help="open the live page while it runs (undrift watch)"),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
    quiet: bool = typer.Option(False, "--quiet", help="no progress, no table"),
) -> None:
    """Compare methods on a small noisy federation. FedAvg and seven others learn handwritten digits, in a minute."""
    from undrift.cli.compare import carried_out, present, refuse_failed
    from undrift.cli.settings import read
    from undrift.cli.watch import require_live, watched
    from undrift.experiment.options import from_keywords
    from undrift.federation.dealing import federate
    from undrift.report import label_distribution
    from undrift.study.compare import comparison_folder, plan_comparison
    from undrift.study.comparison import MethodEntry

    settings = SETTINGS | ({} if rounds is None else read({"rounds": rounds}))
    if watch:
        require_live()
    from_keywords(settings)  # refuse bad values before anything is shown or removed
    if not quiet:
        federation = federate(SETTINGS["data"], SETTINGS["partition"], 20, noise=SETTINGS["noise"])
        typer.echo(
            "Twenty clients train one model for handwritten digits. Most have many samples of only a few digits,\n"
            "and three labels in ten are wrong. The clients' samples by digit, for the first of three seeds:\n",
            err=json,
        )
        typer.echo(label_distribution.terminal(federation, label_distribution.describe(federation)) + "\n", err=json)
    if is_demo(Path(out)):
        shutil.rmtree(out)
    asked = plan_comparison([MethodEntry(name) for name in METHODS], settings, SEEDS, None, {})
    folder = comparison_folder(asked, out, resume=False)
    with watched(folder) if watch else contextlib.nullcontext():
        done = carried_out(asked, folder, quiet, None)
        present(done, json, quiet, "Undrift demo: FedAvg and the methods against drift")
    refuse_failed(done.rows)
