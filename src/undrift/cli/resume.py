"""`undrift resume`: go on where a run stopped."""

from __future__ import annotations

import sys

import typer

from undrift.cli.run import show
from undrift.core.errors import BadRequest


def add(app: typer.Typer) -> None:
    app.command("resume")(resume)


def resume(
    run: str = typer.Argument(..., help="the run's folder"),
    rounds: str | None = typer.Option(None, "--rounds", help="give the run this many rounds in all"),
    engine: str | None = typer.Option(None, "--engine", help="another engine than before"),
    workers: str | None = typer.Option(None, "--workers", help="another number of workers"),
    ray_address: str | None = typer.Option(None, "--ray-address", help="another Ray cluster"),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
    quiet: bool = typer.Option(False, "--quiet", help="no progress, no table"),
    log: str | None = typer.Option(None, "--log", help="append every round to this file"),
) -> None:
    """Go on where a run stopped; with --rounds, give a finished one more."""
    from undrift.cli.progress import Progress
    from undrift.cli.settings import read
    from undrift.experiment.resume import load
    from undrift.experiment.resume import resume as go_on

    given = {"rounds": rounds, "engine": engine, "workers": workers, "ray_address": ray_address}
    asked = read({name: value for name, value in given.items() if value is not None})
    more = asked.pop("rounds", None)
    before = load(run)
    planned = before.setup.plan.rounds
    if more is not None and more < before.server_state.round:
        raise BadRequest(
            f"the run has done {before.server_state.round} rounds already; --rounds {more} is less than that"
        )
    if before.server_state.round >= (more or planned):
        if not quiet:
            print(f"{run} is finished: {before.server_state.round} rounds; --rounds N gives it more", file=sys.stderr)
        show(before.summary, json, quiet)
        return
    if more is not None and more > planned and not quiet:
        print("schedules stay as they were resolved at the start of the run", file=sys.stderr)
    progress = Progress(quiet, log)
    try:
        result = go_on(run, rounds=more, callback=progress, **asked)
    finally:
        progress.end()
    show(result.summary, json, quiet)
