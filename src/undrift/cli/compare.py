"""`undrift compare`: run several methods on the same federation."""

from __future__ import annotations

import json as json_module
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from undrift.cli.settings import flag, read, read_one, with_options
from undrift.core.errors import BadRequest, RunFailed, unknown
from undrift.core.words import shown
from undrift.experiment.options import FIELDS, OBJECTS

if TYPE_CHECKING:
    from undrift.study.compare import Compared
    from undrift.study.comparison import Comparison, MethodEntry


def add(app: typer.Typer) -> None:
    app.command("compare")(with_options(compare))


def compare(
    given: dict[str, Any],
    methods: list[str] = typer.Argument(None, help='methods; quote one to give it its own options: "apfl --lr 0.1"'),
    seeds: int | None = typer.Option(None, "--seeds", help="number of seeds, each with its own federation [1]"),
    repeat: int | None = typer.Option(None, "--repeat", help="number of seeds, all on the same federation"),
    grid: list[str] = typer.Option(
        [],
        "--grid",
        help="lr=0.01,0.1 or fedprox.mu=0.01,0.1: choose the best value per method on validation data; repeatable",
    ),
    until_clear: int | None = typer.Option(
        None, "--until-clear", help="add seeds until the first place is clear, at most to this number"
    ),
    resume: bool = typer.Option(False, "--resume", help="finish the comparison in --out or in the given folder"),
    rank_by: str | None = typer.Option(
        None, "--rank-by", help='column to rank by, such as "L1 Acc(L)" [G, or what all methods have]'
    ),
    json: bool = typer.Option(False, "--json", help="print one JSON object on stdout"),
    quiet: bool = typer.Option(False, "--quiet", help="no progress, no table"),
    log: str | None = typer.Option(None, "--log", help="append every round to this file"),
    trust: bool = typer.Option(False, "--trust", help="with --resume: import the code that the folder names"),
) -> None:
    """Run several methods on the same federation. Cohorts and initial model are the same; prints tables, writes a page."""
    from undrift.study.compare import comparison_folder, plan_comparison
    from undrift.study.standings import rank_column

    if "method" in given:
        raise BadRequest("compare takes its methods as arguments; write them without --method")
    rank_column([], rank_by)  # refuse an unknown column before the first run
    out = given.pop("out", None)
    if resume:
        asked, folder = found_again(methods or [], given, out, seeds, repeat, grid, until_clear, trust)
    else:
        if not methods:
            raise BadRequest("compare needs at least one method, such as fedavg")
        asked = plan_comparison(
            [parsed(method) for method in methods],
            given,
            1 if seeds is None else seeds,
            repeat,
            read_grid(grid),
            until_clear,
        )
        folder = comparison_folder(asked, out, resume=False)
    done = carried_out(asked, folder, quiet, log)
    present(done, json, quiet, rank_by=rank_by)
    refuse_failed(done.rows)


def refuse_failed(rows: list[dict[str, Any]]) -> None:
    """Exit with 1 and a sentence if a run failed."""
    failed = [row for row in rows if "failed" in row]
    if failed:
        count = "every run" if len(failed) == len(rows) else f"{len(failed)} of {len(rows)} runs"
        raise RunFailed(f"{count} failed; the first one: {failed[0]['failed']}")


def found_again(
    methods: list[str],
    given: dict[str, Any],
    out: Any,
    seeds: int | None,
    repeat: int | None,
    grid: list[str],
    until_clear: int | None,
    trust: bool,
) -> tuple[Comparison, Path]:
    """The comparison to finish: given by its folder alone, or by its options again, perhaps with more seeds or methods."""
    from undrift.cli.trust import ask_trust
    from undrift.study.compare import comparison_folder, plan_comparison
    from undrift.study.comparison import read_comparison

    if out is None and len(methods) == 1 and Path(methods[0]).is_dir():
        out, methods = methods[0], []
    if out is None:
        raise BadRequest("--resume needs the comparison's folder: undrift compare --resume FOLDER")
    before = read_comparison(Path(out))
    if methods or given or grid:
        asked = plan_comparison(
            [parsed(method) for method in methods],
            given,
            1 if seeds is None else seeds,
            repeat,
            read_grid(grid),
            until_clear,
        )
    else:
        if any(
            str(one).startswith("object:") for one in [*(e.method for e in before.entries), *before.options.values()]
        ):
            raise BadRequest(
                f"{out} compares objects that compare.toml cannot name; use ud.compare(…, resume=True) in Python"
            )
        ask_trust(Path(out), before.foreign_code(), trust)
        if seeds is None and repeat is None and until_clear is None:
            return before, Path(out)
        first, data_seed = before.seeds[0]
        options = {**before.options, "seed": first, "data_seed": None if first == data_seed else data_seed}
        asked = plan_comparison(
            before.entries, options, 1 if seeds is None else seeds, repeat, before.grid, until_clear
        )
    return asked, comparison_folder(asked, out, resume=True)


def read_grid(words: list[str]) -> dict[str, list[Any]]:
    """`lr=0.01,0.1` -> {"lr": [0.01, 0.1]}; `fedprox.mu=0.01,0.1` and `fedprox(mu=0.01,0.1)` -> {"fedprox.mu": […]}. Values
    of an option that is given twice are joined."""
    from undrift.core.text import parse

    grid: dict[str, list[Any]] = {}
    for word in (one for text in words for one in apart(text, " ")):
        if in_brackets := re.fullmatch(r"([A-Za-z_][\w.:-]*)\(\s*([A-Za-z_]\w*)\s*=(.*)\)", word):
            word = f"{in_brackets[1]}.{in_brackets[2]}={in_brackets[3]}"
        key, equals, values = word.partition("=")
        name, dot, option = key.removeprefix("--").rpartition(".")
        option = option.replace("-", "_")
        if not equals:
            raise BadRequest(f"--grid must be name=value,value or method.name=value,value, not {shown(word)}")
        if not name and option not in FIELDS:
            raise unknown("option for --grid", option, FIELDS)
        texts = [value.strip() for value in apart(values, ",")]
        plain = option in FIELDS and option not in OBJECTS
        more = [read_one(option, value) if plain or not name else parse(f"a({value})").args[0] for value in texts]
        key = name + dot + option
        grid[key] = list(dict.fromkeys([*grid.get(key, []), *more]))
    return grid


def apart(text: str, mark: str) -> list[str]:
    """The pieces of a text between marks that are not inside brackets, without empty ones."""
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == mark and depth <= 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece for piece in pieces if piece.strip()]


def carried_out(asked: Comparison, folder: Path, quiet: bool, log: str | None) -> Compared:
    from undrift.cli.board import Board
    from undrift.study.compare import run_until_clear

    board = Board(quiet, log)
    try:
        return run_until_clear(asked, folder, board)
    finally:
        board.end()


def present(done: Compared, json: bool, quiet: bool, title: str | None = None, rank_by: str | None = None) -> None:
    """Write the page, and print tables (for people) or one JSON object (for scripts)."""
    from undrift.cli import note
    from undrift.core.headline import Headline
    from undrift.report.report import write
    from undrift.study.compare import validation_value

    page: Path | str = "none, every run failed"
    if not all("failed" in row for row in done.rows):
        page = done.folder / "index.html"
        note(write(page, [done.folder], title, rank_by))
    if not quiet:
        eyes = sys.stderr if json else sys.stdout
        print(f"\n{done.text(rank_by)}", file=eyes)
        for row in done.rows:
            if "failed" in row:
                print(f"\n{row['method']}, seed {row['seed']}, failed: {row['failed']}", file=eyes)
        if done.tried:
            print(f"\nchosen on validation data: {', '.join(sorted({row['method'] for row in done.rows}))}", file=eyes)
        print(f"\n{done.seconds:.1f} s; report: {page}", file=eyes)
    if json:
        found: dict[str, Any] = {"rows": done.rows, "seconds": done.seconds, "folder": str(done.folder),
                                 "conclusion": done.conclusion.sentence}  # fmt: skip
        if done.tried:
            found["tried"] = [{"method": row["method"], **row.get("chosen", {}), f"validation_{Headline.of(row).name}":
                               validation_value(row)} for row in done.tried]  # fmt: skip
        print(json_module.dumps(found))


def parsed(argument: str) -> MethodEntry:
    """`"apfl --optimizer sgd --lr 0.1"` -> the method and its own options."""
    from undrift.study.comparison import MethodEntry

    name, dashes, rest_of_it = argument.partition(" --")
    name = name.strip()
    try:
        rest = shlex.split(dashes + rest_of_it)
    except ValueError as error:
        raise BadRequest(f"{shown(argument)} cannot be read: {error}; correct it, or leave it out") from None
    if not name:
        raise BadRequest("a method is empty; name one, such as fedavg")
    own: dict[str, Any] = {}
    while rest:
        word = rest.pop(0)
        key = word.removeprefix("--").replace("-", "_")
        if not word.startswith("--") or key not in FIELDS:
            raise unknown(f"option of {name}", word, [flag(f) for f in FIELDS])
        own[key] = True if FIELDS[key].default is False else (rest.pop(0) if rest else "")
    return MethodEntry(name, read(own))
