"""The report of one or several runs: one HTML file that can be sent around.

It reads run folders and nothing else: what it shows of a comparison is what its runs recorded.
"""

from __future__ import annotations

import functools
import shlex
import sqlite3
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undrift.errors import BadRequest
from undrift.options import FIELDS, read_toml
from undrift.result import rows_of
from undrift.store.record import Record
from undrift.study import clients, page, plots
from undrift.study.standings import LEGEND, Row, standings_table, table
from undrift.study.tables import legend
from undrift.study.tasks import times

SAME = ("data", "partition", "clients", "noise", "domains")  # what runs must share to stand in one table
SHARED = ("table", "legend", "clients", "scatter-l1", "scatter-l2", "weights")  # shown for all methods together
HOW = ("engine", "workers", "device", "memory", "out", "seed", "data_seed", "ray_address")


@dataclass(frozen=True)
class Seen:
    """One run as its folder tells it."""

    folder: Path
    options: dict[str, Any]
    about: dict[str, Any]
    row: Row

    @property
    def label(self) -> str:
        return str(self.row["method"])

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return rows_of(self.folder, query, values)


def write(path: Path, folders: Sequence[str | Path], title: str | None = None) -> Path:
    """The page of these runs (or folders of runs)."""
    runs = seen(folders)
    page.write(path, title or heading(runs), sections(runs, [Path(folder) for folder in folders]))
    return path


def seen(folders: Sequence[str | Path]) -> list[Seen]:
    """The runs in these folders; runs that do not belong into one table are refused."""
    places = {place: Path(folder) for folder in folders for place in run_folders(Path(folder))}
    runs, missing = [], None
    for place, folder in places.items():
        try:
            runs.append(look(place))
        except BadRequest as error:
            if place == folder or len(places) == 1:
                raise
            missing = error  # one of many: the others are worth looking at
    if not runs:
        raise missing or BadRequest("there is no run to report")
    for run in runs[1:]:
        for key in SAME:
            a, b = runs[0].options.get(key), run.options.get(key)
            if a != b:
                raise BadRequest(f"runs of different data cannot stand in one table: {key} is {a} in {runs[0].folder} "
                                 f"and {b} in {run.folder}; report them apart")  # fmt: skip
    return told_apart(runs)


def run_folders(folder: Path) -> list[Path]:
    if not folder.exists() and (Path("runs") / folder).is_dir():
        folder = Path("runs") / folder
    if folder.name in ("run.toml", "run.sqlite"):
        folder = folder.parent
    if (folder / "run.sqlite").exists():
        return [folder]
    found = sorted(record.parent for record in folder.glob("*/run.sqlite")) if folder.is_dir() else []
    found = [place for place in found if not is_aside(place)]
    if not found:
        raise BadRequest(f"{folder} is neither a run nor a folder of runs; `undrift runs` lists them")
    return found


def is_aside(place: Path) -> bool:
    """An old run that another took the place of."""
    return ".old" in place.name


def look(folder: Path) -> Seen:
    from undrift.study.summary import client_stage, global_stage

    if not (folder / "run.toml").exists():
        raise BadRequest(f"the run in {folder} is half-written: it has no run.toml; start it again")
    options = read_toml(folder / "run.toml")
    about = tomllib.loads((folder / "run.toml").read_text()).get("about", {})
    rounds, seconds = rows_of(folder, "SELECT COUNT(*), COALESCE(SUM(seconds), 0) FROM rounds")[0]
    if not rounds:
        raise BadRequest(f"the run in {folder} has no finished round yet; `undrift resume {folder}` goes on")
    record = Record(folder / "run.sqlite", read_only=True)
    try:
        stages = {
            "G": global_stage(record),
            **{s: client_stage(record, s, options["thresholds"]) for s in ("L1", "L2")},
        }
    except sqlite3.DatabaseError as error:
        raise BadRequest(f"the record in {folder} cannot be read: {error}") from None
    finally:
        record.close()
    row = {"method": options["method"], "seed": options.get("seed", 0), "run": str(folder), "rounds": rounds,
           "seconds": seconds, "accuracy": (stages["G"] or {}).get("accuracy"), "stages": stages,
           "times": times(functools.partial(rows_of, folder))}  # fmt: skip
    return Seen(folder, options, about, row)


def told_apart(runs: Sequence[Seen]) -> list[Seen]:
    """Labels: the method, and the options in which runs of one method differ."""
    named = []
    for run in runs:
        alike = [other for other in runs if other.options["method"] == run.options["method"]]
        differ = [key for key in FIELDS if key not in HOW
                  and len({repr(other.options.get(key)) for other in alike}) > 1]  # fmt: skip
        own = " ".join(f"{key}={run.options.get(key)}" for key in differ)
        named.append(
            Seen(run.folder, run.options, run.about, {**run.row, "method": f"{run.options['method']} {own}".strip()})
        )
    pairs = [(run.label, run.row["seed"], run.options.get("data_seed")) for run in named]
    again = {pair for pair in pairs if pairs.count(pair) > 1}
    return [
        Seen(run.folder, run.options, run.about, {**run.row, "method": f"{run.label} ({run.folder.name})"})
        if pair in again
        else run
        for run, pair in zip(named, pairs)
    ]


def heading(runs: Sequence[Seen]) -> str:
    options = runs[0].options
    methods = list(dict.fromkeys(run.label for run in runs))
    who = methods[0] if len(methods) == 1 else f"{len(methods)} methods"
    noise = f", {options['noise']}" if options.get("noise") else ""
    return f"{who} on {options['data']}: {options['clients']} clients, {options['partition']}{noise}"


def sections(runs: Sequence[Seen], folders: Sequence[Path]) -> list[page.Section]:
    rows = [run.row for run in runs]
    first_seed = [run for run in runs if run.row["seed"] == runs[0].row["seed"]]
    readers = [(run.label, run.rows) for run in first_seed]
    federation, why_not = its_federation(runs[0])
    parts: list[page.Section] = [
        ("about", introduction(runs)),
        ("table", table(rows), "Results"),
        ("legend", legend()),
        ("standings", [("standings-table", standings_table(rows)), ("standings-legend", LEGEND)], "Standings"),
        ("federation", picture(federation) if federation is not None else why_not, "Who holds what"),
        ("curves", plots.bands(runs, "accuracy", ("G", "global")), "Over the rounds"),
        ("losses", plots.bands(runs, "loss", ("G", "global"))),
        ("local", plots.bands(runs, "accuracy", ("L1", "own"))),
        ("trained", plots.bands(runs, "accuracy", ("L2", "own"))),
        ("clients", plots.client_bars(readers), "Client by client"),
        ("scatter-l1", clients.trade_off(readers, "L1")),
        ("scatter-l2", clients.trade_off(readers, "L2")),
    ]
    if federation is not None:
        sizes = dict(enumerate(int(size) for size in federation.sizes))
        parts.append(("size", plots.against_size(readers, sizes)))
    parts += [
        ("weights", plots.weights(readers), "Weights over the rounds"),
        ("notes", what_they_saw(first_seed, federation), "What each method saw"),
        ("events", events(runs), "What went wrong"),
        ("configuration", configuration(runs), "Configuration"),
        ("environment", environment(runs), "Environment"),
        ("commands", ("pre", commands(runs, folders)), "To repeat it"),
    ]
    return parts


def introduction(runs: Sequence[Seen]) -> str:
    seeds = sorted({run.row["seed"] for run in runs})
    short = [run for run in runs if run.row["rounds"] < run.options["rounds"] and not run.options.get("stop_at")]
    lines = [f"{len(runs)} run{'s' * (len(runs) > 1)}, {runs[0].options['rounds']} rounds, "
             f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}, model {runs[0].options.get('model')}."]  # fmt: skip
    lines += [
        f"{run.label}, seed {run.row['seed']}: {run.row['rounds']} of {run.options['rounds']} rounds so far."
        for run in short
    ]
    if len(seeds) == 1 and len(runs) > 1:
        lines.append("One seed: differences between methods may be chance.")
    return "\n".join(lines)


def its_federation(run: Seen) -> tuple[Any, str]:
    from undrift.reopen import remade

    try:
        return remade(run.folder, None, None, None).federation, ""
    except BadRequest as error:
        return None, f"The picture is missing: {error}."


def picture(federation: Any) -> list[page.Section]:
    from undrift.study import holdings

    return holdings.sections(federation, holdings.describe(federation))


def what_they_saw(runs: Sequence[Seen], federation: Any) -> list[page.Section]:
    """Of every method on the first seed: its stages, the papers' protocols, diagnostics, and what its parts noted."""
    from undrift.study import run_page
    from undrift.study.traces import traces

    found: list[page.Section] = []
    for number, run in enumerate(runs):
        alone = run_page.sections(run.label, run.rows, run.row, run.options["thresholds"])
        own = [section for section in alone if section[0] not in SHARED]
        own += traces(run.rows, federation).sections()
        inside = [(f"notes-{number}-{name}", content) for name, content in own]
        found.append((f"notes-{number}", ("details", f"{run.label}, seed {run.row['seed']}", inside)))
    return found


def events(runs: Sequence[Seen]) -> Any:
    rows = [["method", "seed", "round", "client", "kind", "detail"]]
    for run in runs:
        for round, client, kind, detail in run.rows(
            "SELECT round, client, kind, detail FROM events ORDER BY rowid LIMIT 50"
        ):
            rows.append(
                [
                    run.label,
                    str(run.row["seed"]),
                    str(round),
                    "—" if client is None else str(client),
                    kind,
                    str(detail)[:200],
                ]
            )
    return rows if len(rows) > 1 else "Nothing."


def configuration(runs: Sequence[Seen]) -> list[page.Section]:
    """What all runs share, and what each method has of its own."""
    keys = [key for key in FIELDS if key not in HOW and key != "method"]
    shared = [key for key in keys if len({repr(run.options.get(key)) for run in runs}) == 1]
    rows = [["option", "value"], *[[key, words(runs[0].options.get(key))] for key in shared]]
    own = [["method", "parts", "options"]]
    for run in {run.label: run for run in runs}.values():
        differ = ", ".join(f"{key}={words(run.options.get(key))}" for key in keys if key not in shared)
        own.append([run.label, ", ".join(run.options.get("parts", [])), differ or "—"])
    return [("methods", own), ("options", rows)]


def words(value: Any) -> str:
    return "—" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def environment(runs: Sequence[Seen]) -> list[list[str]]:
    shown = [["what", "value"]]
    for key in dict.fromkeys(key for run in runs for key in run.about):
        if key in ("federation", "layout", "environment"):
            continue
        found = sorted({str(run.about.get(key)) for run in runs})
        shown.append(
            [
                key,
                found[0] if len(found) == 1 else f"{found[0]} … {found[-1]}" if key == "started" else ", ".join(found),
            ]
        )
    for key, value in runs[0].about.get("environment", {}).items():
        shown.append([key, str(value)])
    return shown


def commands(runs: Sequence[Seen], folders: Sequence[Path]) -> str:
    lines = []
    for folder in folders:
        if (folder / "compare.toml").exists():
            lines += ["# everything", compare_command(folder), ""]
    lines.append("# one run")
    lines += [f"undrift run {shlex.quote(str(run.folder / 'run.toml'))}" for run in runs[:20]]
    if len(runs) > 20:
        lines.append(f"# … and {len(runs) - 20} more")
    return "\n".join(lines)


def compare_command(folder: Path) -> str:
    from undrift.study.compare import read

    asked = read(folder)
    entries = [" ".join([str(e.method), *(spelt(k, v) for k, v in e.own.items())]) for e in asked.entries]
    first, data_seed = asked.seeds[0]
    repeated = len({data for _, data in asked.seeds}) == 1 and len(asked.seeds) > 1
    options = [spelt(key, value) for key, value in asked.options.items()]
    options += [f"--seed {first}"] if first else []
    options += [f"--data-seed {data_seed}"] if data_seed != first and len(asked.seeds) == 1 else []
    options += [f"--{'repeat' if repeated else 'seeds'} {len(asked.seeds)}"] if len(asked.seeds) > 1 else []
    options += [f"--grid {key}={','.join(map(str, values))}" for key, values in asked.grid.items()]
    return " ".join(["undrift compare", *map(shlex.quote, entries), *options])


def spelt(key: str, value: Any) -> str:
    flag = "--" + key.replace("_", "-")
    return flag if value is True else f"{flag} {shlex.quote(str(value))}"
