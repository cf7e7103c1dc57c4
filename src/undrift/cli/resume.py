"""`undrift resume`: resume a run from its last checkpoint."""

from __future__ import annotations

import sys

import typer

from undrift.cli.run import refuse_nothing_learned, show
from undrift.core.errors import BadRequest


def add(app: typer.Typer) -> None:
    app.command("resume")(resume)


def resume(
    run: str = typer.Argument(..., help="folder of the run"),
    rounds: str | None = typer.Option(None, "--rounds", help="new total number of rounds"),
    engine: str | None = typer.Option(None, "--engine", help="change the engine"),
    workers: str | None = typer.Option(None, "--workers", help="change the number of workers"),
    ray_address: str | None = typer.Option(None, "--ray-address", help="change the Ray cluster"),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
    quiet: bool = typer.Option(False, "--quiet", help="no progress, no table"),
    log: str | None = typer.Option(None, "--log", help="append every round to this file"),
    trust: bool = typer.Option(False, "--trust", help="import the code that the run names (package:function)"),
) -> None:
    """Resume a run that was stopped. With --rounds, continue a finished one."""
    from undrift.cli import note
    from undrift.cli.progress import Progress
    from undrift.cli.settings import read
    from undrift.cli.trust import ask_trust
    from undrift.experiment.folders import run_folder
    from undrift.experiment.foreign_code import foreign_code
    from undrift.experiment.resume import open_run
    from undrift.experiment.resume import resume as resume_run
    from undrift.experiment.run_file import run_file

    given = {"rounds": rounds, "engine": engine, "workers": workers, "ray_address": ray_address}
    asked = read({name: value for name, value in given.items() if value is not None})
    more = asked.pop("rounds", None)
    folder = run_folder(run)
    ask_trust(folder, foreign_code(run_file(folder).options), trust)
    before = open_run(run, trust=True)
    planned = before.setup.plan.rounds
    if before.server_state.round >= (more or planned) or run_file(folder).changed is None:
        note(before.damage)  # to resume with a changed run.toml is refused, with the same words
    if more is not None and more < before.server_state.round:
        raise BadRequest(
            f"the run already has {before.server_state.round} rounds; --rounds {more} must be more than that"
        )
    if before.server_state.round >= (more or planned):
        if not quiet:
            print(
                f"{run} is finished: {before.server_state.round} rounds; --rounds N continues it to N", file=sys.stderr
            )
        show(before.summary, json, quiet)
        refuse_nothing_learned(before)
        return
    if more is not None and more > planned and not quiet:
        print("note: the method's schedules stay as they were at the start of the run", file=sys.stderr)
    progress = Progress(quiet, log)
    try:
        result = resume_run(run, rounds=more, callback=progress, trust=True, **asked)
    finally:
        progress.end()
    show(result.summary, json, quiet)
    refuse_nothing_learned(result)
