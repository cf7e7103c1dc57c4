"""Load runs from their folders, and give each a label that distinguishes it from the others."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest, RunFailed
from undrift.experiment.folders import find_folder
from undrift.experiment.foreign_code import resume_command
from undrift.experiment.options import FIELDS
from undrift.experiment.resume import open_store, sentence_if_damaged
from undrift.experiment.run_file import run_file
from undrift.store.own_files import refuse_links
from undrift.store.record import headline_of, rows_of
from undrift.study.compare import MUST_AGREE
from undrift.study.comparison import read_comparison
from undrift.study.tasks import Row, seconds_per_round

NOT_IN_LABELS = (
    "engine",
    "workers",
    "device",
    "memory",
    "out",
    "seed",
    "data_seed",
    "ray_address",
    "track",
)  # same method


@dataclass(frozen=True)
class LoadedRun:
    """One run: its folder, its run.toml, and its results as a row."""

    folder: Path
    options: dict[str, Any]
    about: dict[str, Any]
    row: Row
    damage: tuple[str, ...] = ()  # sentences about what is not as the run wrote it

    @property
    def label(self) -> str:
        return str(self.row["method"])

    def query(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Rows of the run's record."""
        return rows_of(self.folder, query, values)


def load_runs(folders: Sequence[str | Path]) -> list[LoadedRun]:
    """The runs in these folders. Runs that do not belong in one table are refused."""
    places = {place: folder for folder in map(find_folder, folders) for place in run_folders(folder)}
    runs, error_of_one = [], None
    for place, folder in places.items():
        try:
            runs.append(load_run(place))
        except BadRequest as error:
            if place == folder or len(places) == 1:
                raise
            error_of_one = error  # one run of many: the others can be loaded
    if not runs:
        raise error_of_one or BadRequest("there is no run to report")
    for run in runs[1:]:
        for key in MUST_AGREE:
            a, b = runs[0].options.get(key), run.options.get(key)
            if a != b:
                raise BadRequest(
                    f"runs on different data do not belong in one table: {key} is {a} in {runs[0].folder} "
                    f"and {b} in {run.folder}; report them separately"
                )
        names = [one.row["headline"]["name"] for one in (runs[0], run)]
        if names[0] != names[1]:
            raise BadRequest(
                f"runs of different tasks do not belong in one table: {runs[0].folder} is ranked by {names[0]} and "
                f"{run.folder} by {names[1]}; report them separately"
            )
    return with_distinct_labels(runs, {key for folder in set(places.values()) for key in searched(folder)})


def run_folders(folder: Path) -> list[Path]:
    """The folder itself if it is a run, else the runs in it without replaced ones and rejected grid points."""
    if (folder / "run.sqlite").exists():
        return [folder]
    places = sorted(record.parent for record in folder.glob("*/run.sqlite")) if folder.is_dir() else []
    rejected = read_comparison(folder).rejected if (folder / "compare.toml").exists() else ()
    places = [place for place in places if not is_replaced(place) and place.name not in rejected]
    if not places:
        raise BadRequest(f"{folder} is neither a run nor a folder of runs; `undrift runs` lists them")
    return places


def is_replaced(place: Path) -> bool:
    """Whether a newer run took the name of this one."""
    return ".old" in place.name


def load_run(folder: Path) -> LoadedRun:
    from undrift.experiment.summary import sites, stages_of

    if not (folder / "run.toml").exists():
        raise BadRequest(f"the run in {folder} is half-written: it has no run.toml; start it again")
    refuse_links(folder)
    written = run_file(folder)
    options = written.options
    try:
        store = open_store(folder, written, lock=False)
    except RunFailed as error:
        raise BadRequest(str(error)) from None
    try:
        rounds, seconds = store.record.all("SELECT COUNT(*), COALESCE(SUM(seconds), 0) FROM rounds")[0]
        if not rounds:
            raise BadRequest(
                f"the run in {folder} has no finished round yet; `{resume_command(folder, options)}` continues it"
            )
        damage = [*written.damage, *store.damage()]
        with sentence_if_damaged(folder, damage):
            stages, headline = stages_of(store.record, options["thresholds"]), headline_of(store.record.all)
            times = seconds_per_round(functools.partial(rows_of, folder))
    except RunFailed as error:
        raise BadRequest(str(error)) from None
    finally:
        store.close()
    row = {
        "method": options["method"], "seed": options.get("seed", 0), "run": str(folder), "rounds": rounds,
        "seconds": seconds, "accuracy": (stages["G"] or {}).get("accuracy"),
        "headline": headline.as_json((stages["G"] or {}).get(headline.name)), "stages": stages,
        "times": times,
        "sites": sites(functools.partial(rows_of, folder)),
    }  # fmt: skip
    return LoadedRun(folder, options, written.about, row, tuple(damage))


def with_distinct_labels(runs: Sequence[LoadedRun], chosen: Collection[str] = ()) -> list[LoadedRun]:
    """Label each run with its method, and with the options in which runs of that method differ or in which the method
    departs from most others. Options that a grid chose are always shown."""
    keys = [key for key in FIELDS if key != "method" and key not in NOT_IN_LABELS]
    texts = [{key: repr(run.options.get(key)) for key in keys} for run in runs]
    usual = {key: Counter(text[key] for text in texts).most_common(1)[0][0] for key in keys}
    alike: dict[str, list[int]] = {}
    for number, run in enumerate(runs):
        alike.setdefault(run.options["method"], []).append(number)
    labelled = list(runs)
    for method, numbers in alike.items():
        shown = [key for key in keys if key in chosen or {texts[number][key] for number in numbers} != {usual[key]}]
        parts = [runs[number].options.get("parts", []) for number in numbers]
        for number in numbers:
            run = runs[number]
            own = [f"{key}={run.options.get(key)}" for key in shown]
            own += [part for part in run.options.get("parts", []) if not all(part in others for others in parts)]
            labelled[number] = replace(run, row={**run.row, "method": " ".join([method, *own])})
    pairs = [(run.label, run.row["seed"], run.options.get("data_seed")) for run in labelled]
    repeated = {pair for pair, count in Counter(pairs).items() if count > 1}
    return [
        replace(run, row={**run.row, "method": f"{run.label} ({run.folder.name})"}) if pair in repeated else run
        for run, pair in zip(labelled, pairs)
    ]


def searched(folder: Path) -> set[str]:
    """The options that the grid of a comparison chose; empty for other folders."""
    if not (folder / "compare.toml").exists():
        return set()
    return {key.rpartition(".")[2] for key in read_comparison(folder).grid}
