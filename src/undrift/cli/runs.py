"""`undrift runs`: list the runs in a folder."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Any

import typer

from undrift.core.errors import BadRequest
from undrift.core.headline import Headline

# Nothing here imports torch: a list of a thousand runs should not take longer to start than to make.


def add(app: typer.Typer) -> None:
    app.command("runs")(runs)


def runs(
    folder: str = typer.Argument("runs", help="folder to list"),
    remove: str | None = typer.Option(None, "--remove", help="delete this run"),
    json: bool = typer.Option(False, "--json", help="print JSON on stdout"),
) -> None:
    """List runs, newest last; --remove NAME deletes one."""
    from undrift.cli import note

    if remove is not None:
        remove_run(Path(remove) if (Path(remove) / "run.toml").exists() else Path(folder) / remove)
        return
    if not Path(folder).is_dir():
        if folder != "runs":
            raise BadRequest(f"there is no folder {folder}; name one that has runs")
        typer.echo("[]" if json else "no runs yet; `undrift run` makes one")
        return
    found, unreadable = list[dict[str, Any]](), list[str]()
    for file in sorted(Path(folder).rglob("run.toml"), key=lambda path: path.lstat().st_mtime):
        if not (file.parent / "run.sqlite").exists():  # a run that has just begun, or a run.toml to start one with
            continue
        try:
            found.append(listed(file))
        except (BadRequest, OSError) as error:
            unreadable.append(f"{file.parent} is left out: {error}")
    note(unreadable)
    if json:
        typer.echo(json_module.dumps(found))
        return
    from undrift.experiment.tables import headline_value, text_table

    rows = [["run", "method", "data", "rounds", "G"]]
    rows += [
        [f["run"], f["method"], f["data"], f"{f['rounds']}/{f['of']}", Headline.of(f).show(headline_value(f))]
        for f in found
    ]
    typer.echo(text_table(rows, words=(0, 1, 2)) if found else "no runs yet; `undrift run` makes one")


def listed(file: Path) -> dict[str, Any]:
    """A run as one entry of the list."""
    from undrift.core.files import read_toml
    from undrift.core.schema import check
    from undrift.experiment.options import Options
    from undrift.store.own_files import refuse_links
    from undrift.store.record import headline_of, reading

    query = (
        "SELECT (SELECT COUNT(*) FROM rounds), (SELECT value FROM metrics WHERE stage='G' AND data='global' "
        "AND metric=? ORDER BY round DESC LIMIT 1)"
    )
    refuse_links(file.parent)
    written = read_toml(file)
    if missing := [key for key in ("method", "data", "rounds") if key not in written]:
        raise BadRequest(f"{file} has no key {missing[0]}; restore the file, or remove the folder")
    options = check(Options, {key: written[key] for key in ("method", "data", "rounds")}, str(file))
    with reading(file.parent) as rows:
        headline = headline_of(rows)
        ((done, value),) = rows(query, (headline.name,))
    return {
        "run": str(file.parent), "method": options["method"], "data": options["data"], "rounds": done,
        "of": options["rounds"], "accuracy": value if headline.name == "accuracy" else None,
        "headline": headline.as_json(value),
    }  # fmt: skip


def remove_run(place: Path) -> None:
    import os

    from undrift.experiment.folders import run_folder
    from undrift.store.own_files import remove_own
    from undrift.store.run_store import locked

    folder = run_folder(place)
    os.close(locked(folder))
    left = remove_own(folder)
    typer.echo(f"removed {folder}")
    if left:
        typer.echo(f"left what is not the run's: {', '.join(map(str, left))}", err=True)
