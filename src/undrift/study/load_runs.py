"""Runs as their folders tell them, found and told apart."""

from __future__ import annotations

import functools
import sqlite3
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest
from undrift.experiment.folders import find_folder
from undrift.experiment.options import FIELDS
from undrift.experiment.run_toml import read_toml
from undrift.store.record import Record, rows_of
from undrift.study.comparison import read
from undrift.study.tasks import Row, times

SAME = ("data", "partition", "clients", "noise", "domains")  # what runs must share to stand in one table
HOW = (
    "engine",
    "workers",
    "device",
    "memory",
    "out",
    "seed",
    "data_seed",
    "ray_address",
)  # what does not change a method


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


def seen(folders: Sequence[str | Path]) -> list[Seen]:
    """The runs in these folders; runs that do not belong into one table are refused."""
    places = {place: folder for folder in map(find_folder, folders) for place in run_folders(folder)}
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
    if (folder / "run.sqlite").exists():
        return [folder]
    found = sorted(record.parent for record in folder.glob("*/run.sqlite")) if folder.is_dir() else []
    beside = read(folder).rejected if (folder / "compare.toml").exists() else ()
    found = [place for place in found if not is_aside(place) and place.name not in beside]
    if not found:
        raise BadRequest(f"{folder} is neither a run nor a folder of runs; `undrift runs` lists them")
    return found


def is_aside(place: Path) -> bool:
    """An old run that another took the place of."""
    return ".old" in place.name


def look(folder: Path) -> Seen:
    from undrift.experiment.summary import client_stage, global_stage

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
    """Labels: the method, with the options in which runs of that method differ or in which it departs from most others."""
    keys = [key for key in FIELDS if key != "method" and key not in HOW]
    usual = {key: Counter(repr(run.options.get(key)) for run in runs).most_common(1)[0][0] for key in keys}
    named = []
    for run in runs:
        alike = [other for other in runs if other.options["method"] == run.options["method"]]
        said = [key for key in keys if {repr(other.options.get(key)) for other in alike} != {usual[key]}]
        own = " ".join(f"{key}={run.options.get(key)}" for key in said)
        named.append(replace(run, row={**run.row, "method": f"{run.options['method']} {own}".strip()}))
    pairs = [(run.label, run.row["seed"], run.options.get("data_seed")) for run in named]
    again = {pair for pair in pairs if pairs.count(pair) > 1}
    return [
        replace(run, row={**run.row, "method": f"{run.label} ({run.folder.name})"}) if pair in again else run
        for run, pair in zip(named, pairs)
    ]
