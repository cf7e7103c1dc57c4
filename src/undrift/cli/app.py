"""All commands in one app. Heavy imports wait until a command runs."""

from __future__ import annotations

from typing import Any

import typer
import typer.core

import undrift
from undrift.cli import (
    advise,
    bench,
    check,
    compare,
    data,
    demo,
    deploy,
    env,
    export,
    methods,
    models,
    paper,
    predict,
    report,
    resume,
    run,
    runs,
    show,
    watch,
)
from undrift.core.errors import Stopped

__all__ = ["app", "commands"]

WELCOME = f"""Undrift {undrift.__version__}: federated learning that holds on data that is not alike.

Try first:
  undrift demo                                   FedAvg and the methods against drift, in a minute
  undrift run --method flood --rounds 30         one run on the built-in data
  undrift compare fedavg scaffold fliu           several methods on the same federation

`undrift --help` lists every command, `undrift methods` every method.
"""


class Group(typer.core.TyperGroup):
    """Turns Ctrl-C into `Stopped`: the option parser would drop the message of a KeyboardInterrupt."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise Stopped(str(stop)) from None


app = typer.Typer(cls=Group, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def root(context: typer.Context, version: bool = typer.Option(False, "--version", help="print the version")) -> None:
    """Federated learning that holds on data that is not alike."""
    if version:
        typer.echo(f"undrift {undrift.__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(WELCOME)


for module in (
    demo, run, compare, advise, resume, show, report, export, predict, runs, watch, methods, models, check, env, bench,
):  # fmt: skip
    module.add(app)
app.add_typer(data.app, name="data")
app.add_typer(paper.app, name="paper")
app.add_typer(deploy.app, name="deploy")
commands = [
    "advise", "bench", "check", "compare", "data", "demo", "deploy", "env", "export", "methods", "models", "paper", "predict", "report",
    "resume", "run", "runs", "show", "watch",
]  # fmt: skip
