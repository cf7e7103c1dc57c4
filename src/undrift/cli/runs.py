"""`undrift runs`: list the runs in a folder."""

from __future__ import annotations

import json as json_module
from pathlib import Path

import typer

from undrift.core.errors import BadRequest


def add(app: typer.Typer) -> None:
    app.command("runs")(runs)


def runs(
    folder: str = typer.Argument("runs", help="folder to list"),
    remove: str | None = typer.Option(None, "--remove", help="delete this run"),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
) -> None:
    """List runs, newest last; --remove NAME deletes one."""
    from undrift.cli import note
    from undrift.experiment.folders import run_folder
    from undrift.experiment.run_toml import read_run
    from undrift.store.own_files import refuse_links, remove_own
    from undrift.store.record import rows_of
    from undrift.store.run_store import locked

    if remove is not None:
        path = Path(remove) if (Path(remove) / "run.toml").exists() else Path(folder) / remove
        path = run_folder(path)
        import os

        os.close(locked(path))
        left = remove_own(path)
        typer.echo(f"removed {path}")
        if left:
            typer.echo(f"left what is not the run's: {', '.join(map(str, left))}", err=True)
        return
    if not Path(folder).is_dir():
        if folder != "runs":
            raise BadRequest(f"there is no folder {folder}; name one that has runs")
        typer.echo("[]" if json else "no runs yet; `undrift run` makes one")
        return
    found, unreadable = [], []
    for toml in sorted(Path(folder).rglob("run.toml"), key=lambda path: path.lstat().st_mtime):
        if not (toml.parent / "run.sqlite").exists():  # a run that has just begun, or a run.toml to start one with
            continue
        try:
            refuse_links(toml.parent)
            options = read_run(toml).settings
            done = rows_of(toml.parent, "SELECT COUNT(*) FROM rounds")[0][0]
            last = rows_of(
                toml.parent,
                "SELECT value FROM metrics WHERE stage='G' AND data='global' AND metric='accuracy' ORDER BY round DESC LIMIT 1",
            )
            if missing := [key for key in ("method", "data", "rounds") if key not in options]:
                raise BadRequest(f"{toml} has no key {missing[0]}")
        except (BadRequest, OSError) as error:
            unreadable.append(f"{toml.parent} is left out: {error}")
            continue
        found.append(
            {
                "run": str(toml.parent),
                "method": options["method"],
                "data": options["data"],
                "rounds": done,
                "of": options["rounds"],
                "accuracy": last[0][0] if last else None,
            }
        )
    note(unreadable)
    if json:
        typer.echo(json_module.dumps(found))
        return
    from undrift.experiment.tables import percent, text_table

    rows = [["run", "method", "data", "rounds", "G"]]
    rows += [[f["run"], f["method"], f["data"], f"{f['rounds']}/{f['of']}", percent(f["accuracy"])] for f in found]
    typer.echo(text_table(rows, words=(0, 1, 2)) if found else "no runs yet; `undrift run` makes one")
