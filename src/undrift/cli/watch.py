"""`undrift watch`: a live page of runs, comparisons and deployments."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from annotated_types import Ge, Le

from undrift.cli.settings import read_as
from undrift.core.errors import BadRequest

# Nothing here imports torch.
Port = Annotated[int, Ge(0), Le(65_535)]


def add(app: typer.Typer) -> None:
    app.command("watch")(watch)


def watch(
    folders: list[str] = typer.Argument(None, help="folders of runs, or runs [runs]"),
    port: str | None = typer.Option(None, "--port", help="port, 0 for any free one [8420]", metavar="VALUE"),
    host: str = typer.Option(
        "127.0.0.1", "--host", help="address to listen on; another one than this machine's own needs --token"
    ),
    token: bool = typer.Option(
        False, "--token", help="make a secret address and print it; without it the page refuses"
    ),
    no_browser: bool = typer.Option(False, "--no-browser", help="do not open a browser"),
) -> None:
    """Watch runs while they go on, in the browser: curves, clients, comparisons, sites. It reads folders and changes nothing."""
    require_live()
    from undrift.live.serve import serve

    number = read_as(Port, "port", port)
    places = [Path(folder) for folder in folders or ["runs"]]
    for place in places:
        if not place.is_dir() and folders:
            raise BadRequest(f"there is no folder {place}; name one that has runs, or will have")
    serve(places, host, number, token, not no_browser, lambda line: typer.echo(line, err=True))


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Show a folder in a process beside this one, so that it does not slow the work here. On a terminal the page stays
    until Ctrl-C."""
    require_live()
    program = [sys.executable, "-c", "from undrift.cli import main; main()", "watch", str(folder)]
    process = subprocess.Popen(program)
    try:
        yield
        if sys.stderr.isatty():
            typer.echo("the live page stays; Ctrl-C ends it", err=True)
            with contextlib.suppress(KeyboardInterrupt):
                process.wait()
    finally:
        process.terminate()
        process.wait()


def require_live() -> None:
    if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise BadRequest("the live page needs Starlette and Uvicorn; install them with pip install 'undrift[live]'")
