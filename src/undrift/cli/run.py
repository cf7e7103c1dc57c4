"""`undrift run`: run one method."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from undrift.cli.settings import with_options
from undrift.core.errors import BadRequest, RunFailed
from undrift.core.headline import Headline

if TYPE_CHECKING:
    from undrift.experiment.result import Result


def add(app: typer.Typer) -> None:
    app.command("run")(with_options(run))


def run(
    given: dict[str, Any],
    file: str | None = typer.Argument(None, help="run.toml (or folder) of a run to repeat; options override it"),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
    quiet: bool = typer.Option(False, "--quiet", help="no progress, no table"),
    log: str | None = typer.Option(None, "--log", help="append every round to this file"),
) -> None:
    """Run one method on the built-in data or on your own."""
    from undrift.cli.progress import Progress
    from undrift.engine.spawn import start_workers, stop_workers
    from undrift.experiment import kept_code
    from undrift.experiment.agreement import about_of, check_repeated
    from undrift.experiment.foreign_code import foreign_code
    from undrift.experiment.run_toml import read_toml

    table = {}
    if file is not None:
        path = Path(file) / "run.toml" if Path(file).is_dir() else Path(file)
        table = read_toml(path)
        if any(isinstance(v, str) and v.startswith("object:") for v in table.values()) or any(
            ".object:" in part for part in table.get("parts", [])
        ):
            raise BadRequest(f"{file} has objects that text cannot name; repeat the run in Python with ud.run(…)")
        kept_code.make_importable(foreign_code(table, given), path.parent / kept_code.FOLDER)
        for _, changed in kept_code.changed(about_of(path)):
            print(
                f"note: {kept_code.shown(changed)} has changed since that run; this one uses it as it is",
                file=sys.stderr,
            )
        if "method" not in given:
            check_repeated(table, path)
    if "method" in given:
        table.pop("parts", None)
    if "selection" in given:
        table.pop("cohort", None)
    given = {**table, **given}
    started = None
    if given.get("engine") == "processes" and given.get("workers", 1) >= 1:
        started = start_workers(given.get("workers"))  # they import torch while this process does
    from undrift.experiment.runner import run as start

    progress = Progress(quiet, log)
    try:
        result = start(
            given.pop("method", "fedavg"), callback=progress, parts=given.pop("parts", None), started=started, **given
        )
    finally:
        progress.end()
        stop_workers(started or [])
    show(result.summary, json, quiet)
    refuse_nothing_learned(result)


def refuse_nothing_learned(result: Result) -> None:
    """Exit with 1 if no client's training was used: the numbers above are those of the initial model."""
    from undrift.experiment.summary import nothing_learned

    if sentence := nothing_learned(result.rows):
        raise RunFailed(sentence)


def show(summary: dict[str, Any], json: bool, quiet: bool) -> None:
    """Print the result: tables (for people), one JSON object (for scripts)."""
    from undrift.experiment.tables import legend, privacy_lines, site_table, stage_table, text_table, unseen_line

    headline = Headline.of(summary)
    if not quiet:
        stream = sys.stderr if json else sys.stdout
        print(f"\n{text_table(stage_table([summary]))}\n\n{legend(headline)}", file=stream)
        if newcomers := unseen_line(summary):
            print(newcomers, file=stream)
        for line in privacy_lines(summary):
            print(line, file=stream)
        if sites := site_table([("", summary.get("sites", {}))], headline=headline):
            print(f"\n{text_table(sites)}\n", file=stream)
        for failure in summary["failures"][:5]:
            number = f"client {failure['client']}"
            who = "" if failure["client"] is None else f"{failure.get('name', number)} was left out "
            print(f"round {failure['round']}: {who}({failure['kind']}): {failure['detail']}", file=stream)
        if summary["run"]:
            print(f"run: {summary['run']}", file=stream)
    if json:
        print(json_module.dumps(summary))
