"""`undrift compare`: several methods on the same federation."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Any

import typer

from undrift.cli.settings import read, with_options
from undrift.errors import BadRequest, unknown
from undrift.options import FIELDS


def add(app: typer.Typer) -> None:
    app.command("compare")(with_options(compare))


def compare(
    given: dict[str, Any],
    methods: list[str] = typer.Argument(..., help='methods; a quoted one may carry options: "apfl --lr 0.1"'),
    seeds: int = typer.Option(1, "--seeds", help="repeat with so many seeds (run and federation)"),
    repeat: int | None = typer.Option(None, "--repeat", help="repeat so often on one federation"),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
    quiet: bool = typer.Option(False, "--quiet", help="no progress, no table"),
    log: str | None = typer.Option(None, "--log", help="append every round to this file"),
) -> None:
    """Several methods on the same federation, same cohorts, same start; a table and a page."""
    if "method" in given:
        raise BadRequest("compare takes its methods as arguments, not as --method")
    if seeds < 1 or (repeat is not None and repeat < 1):
        raise BadRequest("--seeds and --repeat must be at least 1")
    out = given.pop("out", None)
    rows, folder = many([parsed(method) for method in methods], given, out, seeds, repeat, quiet, log)
    present(rows, folder, json, quiet)


def many(methods: list[tuple[str, dict[str, Any]]], given: dict[str, Any], out: Any, seeds: int, repeat: int | None,
         quiet: bool, log: str | None) -> tuple[list[dict[str, Any]], Path]:  # fmt: skip
    from undrift.cli.progress import Progress
    from undrift.runner import next_free
    from undrift.runner import run as start
    from undrift.study.compare import compare as all_of_them
    from undrift.study.compare import ready

    seed = given.pop("seed", 0)
    data_seed = given.pop("data_seed", None)
    runs = range(seed, seed + (repeat or seeds))
    pairs = [(s, data_seed if data_seed is not None else (seed if repeat else s)) for s in runs]
    given = ready(methods, given, pairs[0])
    folder = Path(out) if out else next_free(Path("runs"), f"{Path(str(given.get('data', 'digits'))).stem}-compare")

    def one(name: str, settings: dict[str, Any]) -> Any:
        progress = Progress(quiet, log, name)
        try:
            return start(name, watcher=progress, **settings)
        finally:
            progress.end()

    return all_of_them(methods, given, pairs, folder, one), folder


def present(rows: list[dict[str, Any]], folder: Path, json: bool, quiet: bool, title: str = "Comparison") -> None:
    from undrift.result import rows_of
    from undrift.study import clients, page, plots
    from undrift.study.compare import table
    from undrift.study.tables import legend, text_table

    shown = table(rows)
    done = [(f"{row['method']} (seed {row['seed']})" if len({r['seed'] for r in rows}) > 1 else row["method"], Path(row["run"]))
            for row in rows if row.get("run")]  # fmt: skip
    readers = [(name, lambda query, values=(), f=place: rows_of(f, query, values)) for name, place in done]
    page.write(folder / "index.html", title, [
        ("table", shown), ("legend", legend()),
        ("curves", plots.trajectory(readers, "accuracy", ("G", "global"))),
        ("losses", plots.trajectory(readers, "loss", ("G", "global"))),
        ("local", plots.trajectory(readers, "accuracy", ("L1", "own"))),
        ("clients", plots.client_bars(readers)),
        ("scatter", clients.trade_off(readers, "L2")),
    ])  # fmt: skip
    if not quiet:
        eyes = sys.stderr if json else sys.stdout
        print(f"\n{text_table(shown)}\n\n{legend()}\n\nreport: {folder / 'index.html'}", file=eyes)
    if json:
        print(json_module.dumps({"rows": rows}))


def parsed(argument: str) -> tuple[str, dict[str, Any]]:
    from undrift.study.compare import split

    name, words = split(argument)
    own: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        key = word.removeprefix("--").replace("-", "_")
        if not word.startswith("--") or key not in FIELDS:
            raise unknown(f"option of {name}", word, [f"--{f.replace('_', '-')}" for f in FIELDS])
        own[key] = True if FIELDS[key].default is False else (words.pop(0) if words else "")
    return name, read(own)
