"""The commands, put together. Heavy imports wait until a command runs."""

from __future__ import annotations

import typer

import undrift
from undrift.cli import bench, compare, data, demo, deploy, env, methods, resume, run, runs, show
from undrift.cli.settings import known_options

__all__ = ["app", "commands", "known_options"]

WELCOME = f"""Undrift {undrift.__version__}: federated learning that holds on data that is not alike.

Try first:
  undrift demo                                   plain averaging against the remedies, in a minute
  undrift run --method flood --rounds 30         one run on the embedded data
  undrift compare fedavg scaffold fliu           several methods on the same federation

`undrift --help` lists every command, `undrift methods` every method.
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=False)


@app.callback(invoke_without_command=True)
def root(context: typer.Context, version: bool = typer.Option(False, "--version", help="print the version")) -> None:
    """Federated learning that holds on data that is not alike."""
    if version:
        typer.echo(f"undrift {undrift.__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(WELCOME)


for module in (demo, run, compare, resume, show, runs, methods, env, bench):
    module.add(app)
app.add_typer(data.app, name="data")
app.add_typer(deploy.app, name="deploy")
commands = ["bench", "compare", "data", "demo", "deploy", "env", "methods", "resume", "run", "runs", "show"]
