"""Compare several methods on the same federation, with the same cohorts and the same initial model.

None of these depends on the method. So runs with the same seed differ in the method only and can be compared in pairs.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest
from undrift.core.headline import Headline
from undrift.core.schema import Seed, Seeds, checked, python_number
from undrift.core.words import shown
from undrift.data.catalogue import full_path
from undrift.experiment.given import with_given
from undrift.experiment.options import FIELDS, from_keywords
from undrift.federation.federation import Federation
from undrift.study.comparison import Comparison, MethodEntry, as_table, entries_of, read_comparison, write_comparison
from undrift.study.conclusion import Conclusion, by_rank
from undrift.study.dry_run import Estimate, dry_run, weighting_note
from undrift.study.grid import SHARED, check_grid
from undrift.study.tasks import Federations, Row, StudyCallback, run_tasks
from undrift.study.verdict import Looks

PROXY = 0.02
# Of all runs in one table.
MUST_AGREE = ("data", "target", "client_column", "partition", "clients", "noise", "domains", "task")


@dataclass(frozen=True)
class Compared:
    """Rows as `--json` prints them, the folder of the runs, and every point of the grid that was tried."""

    rows: list[Row]
    folder: Path
    seconds: float
    tried: list[Row] = field(default_factory=list)
    looks: Looks | None = None  # set if seeds were added until the first place was clear

    def __str__(self) -> str:
        return self.text()

    def text(self, rank_by: str | None = None) -> str:
        """The tables, what their columns mean, and what can be concluded, for a terminal."""
        from undrift.experiment.tables import headline_of, legend, text_table
        from undrift.study.standings import results_table, sites_table, standings_legend, standings_table

        tables = [results_table(self.rows, rank_by), standings_table(self.rows, rank_by)]
        headline = headline_of(self.rows)
        parts = [*map(text_table, tables), f"{legend(headline)}\n{standings_legend(self.rows, rank_by)}"]
        if sites := sites_table(self.rows):
            parts.append(f"{text_table(sites)}\n\nL1 {headline.title}(L) of every named client, mean over seeds")
        return "\n\n".join([*parts, by_rank(self.rows, rank_by, self.looks).sentence])

    @property
    def conclusion(self) -> Conclusion:
        """Who is ahead of whom, who cannot be distinguished, and how many seeds would decide."""
        return by_rank(self.rows, looks=self.looks)

    def report(self, path: str | Path | None = None) -> Path:
        """Write the page; by default into the folder of the runs."""
        from undrift.report.report import write

        path = Path(path) if path else self.folder / "index.html"
        write(path, [self.folder])
        return path


def compare(
    methods: Sequence[Any],
    federation: Federation | None = None,
    *,
    seeds: int = 1,
    repeat: int | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    until_clear: int | None = None,
    callback: StudyCallback | None = None,
    **options: Any,
) -> Compared:
    """Run every method on the same federation. `methods`: texts, parts, methods, or (one of these, own options).

    `seeds` varies run and federation, `repeat` the run alone. `grid={"lr": [0.01, 0.1], "fedprox.mu": [0.01, 1]}` chooses per
    method on validation data of the first seed. `until_clear=10` adds seeds until the first place is clear, at most to ten.
    `resume=True` finishes the comparison in `out`."""
    if out is not None and not isinstance(out, (str, os.PathLike)):
        raise BadRequest(
            f"out is the folder of the comparison's runs, not {out!r}; leave it out for runs/DATA-compare-N"
        )
    entries = [
        MethodEntry(*m) if isinstance(m, tuple) and len(m) == 2 and isinstance(m[1], dict) else MethodEntry(m)
        for m in methods
    ]
    options = with_given(options, federation)
    for entry in entries:
        with_given(entry.own_options, federation)
    comparison = plan_comparison(entries, options, seeds, repeat, grid or {}, until_clear)
    if federation is not None and len({data_seed for _, data_seed in comparison.seeds}) > 1:
        raise BadRequest("a federation that is given cannot vary with the seed; use repeat instead of seeds")
    return run_until_clear(comparison, comparison_folder(comparison, out, resume), callback, federation)


def plan_comparison(
    entries: Sequence[MethodEntry],
    options: Mapping[str, Any],
    seeds: int,
    repeat: int | None,
    grid: Mapping[str, Sequence[Any]],
    until_clear: int | None = None,
) -> Comparison:
    """Check the settings of a comparison and put them together."""
    seeds, repeat = checked(Seeds, "--seeds", seeds), checked(Seeds | None, "--repeat", repeat)
    if options.get("engine") == "flower":
        raise BadRequest(
            "--engine flower runs at real sites and compares nothing; `undrift deploy init FOLDER` prepares one run"
        )
    if repeat is not None and seeds > 1:
        raise BadRequest("--seeds varies the federation, --repeat keeps it; give one of them")
    if until_clear is not None:
        seeds, repeat = (seeds if repeat else max(2, seeds)), (max(2, repeat) if repeat else None)
        if until_clear <= (repeat or seeds):
            raise BadRequest(
                f"--until-clear is the largest number of seeds, and {until_clear} is not more than the first {repeat or seeds}"
            )
    if not entries:
        raise BadRequest("name at least one method, such as fedavg")
    for entry in entries:
        if entry.label.startswith("-"):
            raise BadRequest(
                f"{shown(entry.label)} is taken for a method; options come before a lone --, or leave -- out"
            )
        for key in entry.own_options:
            if key in SHARED:
                raise BadRequest(
                    f"--{key.replace('_', '-')} belongs to the whole comparison, not to {entry.method}; give it outside the method's text"
                )
        for key in set(entry.own_options) & set(MUST_AGREE):
            if entry.own_options[key] != options.get(key, FIELDS[key].default):
                raise BadRequest(
                    f"--{key} of {entry.method} makes another federation, and runs on different data do not belong in one "
                    f"table; give --{key} to the whole comparison"
                )
    labels = [entry.label for entry in entries]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise BadRequest(
            f"the method {twice[0]} is named twice; name every method once, or give one of them other options"
        )
    check_grid(grid, entries)
    options = {name: python_number(full_path(value) if name == "data" else value) for name, value in options.items()}
    first = checked(Seed, "--seed", options.pop("seed", 0))
    data_seed = checked(Seed | None, "--data-seed", options.pop("data_seed", None))
    pairs = [
        (seed, data_seed if data_seed is not None else first if repeat else seed)
        for seed in range(first, first + (repeat or seeds))
    ]
    for entry in entries:
        from_keywords({**options, **entry.own_options, "method": entry.method})  # refuse before anything is written
    if grid and not all({**options, **entry.own_options}.get("validation") for entry in entries):
        raise BadRequest("--grid chooses on validation data, and there is none; add --validation 0.1")
    looks = (len(pairs), until_clear) if until_clear is not None else None
    return Comparison(tuple(entries), options, tuple(pairs), dict(grid), until_clear=looks)


def comparison_folder(comparison: Comparison, out: str | Path | None, resume: bool) -> Path:
    """The folder of a comparison, new or to be resumed, with its compare.toml."""
    from undrift.experiment.folders import free_name, next_free
    from undrift.store.durable import make_folder

    if resume:
        folder = Path(out or "")
        check_same(folder, comparison)
    elif out is None:
        data = Path(str(comparison.options.get("data", "digits"))).stem
        folder = next_free(Path("runs"), f"{data}-compare")
    else:
        if out == "" or not isinstance(out, (str, os.PathLike)):
            raise BadRequest(f"out must be a folder, which keeps the runs of the comparison, not {shown(out)}")
        folder = Path(out)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadRequest(f"{folder} is taken; use {free_name(folder)}, or add --resume to finish what it holds")
        try:
            make_folder(folder)
        except OSError as error:
            raise BadRequest(f"{folder} cannot be written: {error.strerror or error}; choose another --out") from None
    write_comparison(folder, comparison)
    return folder


def check_same(folder: Path, comparison: Comparison) -> None:
    """Refuse to resume another comparison than the one in the folder. It may have more methods and more seeds."""
    before, table = read_comparison(folder), as_table(comparison)
    same = {**before.options, **({"data": full_path(before.options["data"])} if "data" in before.options else {})}
    if same != table["options"] or before.grid != table["grid"]:
        raise BadRequest(
            f"the options are not those of {folder}; resume it with the same ones, or choose another --out"
        )
    if (before.until_clear or comparison.until_clear) and before.until_clear != comparison.until_clear:
        raise BadRequest(
            f"{folder} was looked at with {said_looks(before)}, and its intervals hold for that only; resume it with the same"
        )
    now, then = ([entry.label for entry in entries] for entries in (entries_of(table["methods"]), before.entries))
    if now[: len(then)] != then:
        raise BadRequest(f"{folder} compares {', '.join(then)}, in this order; name them first, new methods after them")
    if other := [seed for seed, data_seed in comparison.seeds if dict(before.seeds).get(seed, data_seed) != data_seed]:
        raise BadRequest(
            f"seed {other[0]} ran on another federation in {folder}: --seeds varies the federation, --repeat and "
            "--data-seed keep it; resume it with the options it was started with"
        )


def said_looks(comparison: Comparison) -> str:
    """The options that say how often a comparison is looked at."""
    first, most = comparison.until_clear or (len(comparison.seeds), 0)
    return f"--seeds {first}" + (f" --until-clear {most}" if most else " and no --until-clear")


def run_until_clear(
    comparison: Comparison,
    folder: Path,
    callback: StudyCallback | None = None,
    federation: Federation | None = None,
) -> Compared:
    """Run a comparison. With `until_clear`, add seeds until the first place is clear or their largest number is reached."""
    looks, seconds = comparison.looks, 0.0
    while True:
        write_comparison(folder, comparison)
        done = run_comparison(comparison, folder, callback, federation)
        seconds += done.seconds
        done = replace(done, seconds=seconds, looks=looks)
        failed = any("failed" in row for row in done.rows)
        if looks is None or failed or len(comparison.seeds) >= looks.most or done.conclusion.clear:
            return done
        comparison = replace(comparison.with_one_more_seed(), rejected=read_comparison(folder).rejected)


def run_comparison(
    comparison: Comparison,
    folder: Path,
    callback: StudyCallback | None = None,
    federation: Federation | None = None,
) -> Compared:
    """Run what is not there yet: the points of a grid on the first seed, then every method on every seed."""
    federations, as_given = Federations(federation), comparison
    try:
        # First how the runs are spread: what they get decides whether they can share stacks.
        comparison, spread = how_to_spread(with_proxy(comparison))
        estimates = check_and_estimate(comparison, federations, callback or StudyCallback())
    except BadRequest:
        remove_unused(folder)
        raise
    numbers = range(len(comparison.entries))
    points = [comparison.points(entry) for entry in comparison.entries]
    chosen, tried, took = [0 for _ in numbers], list[Row](), 0.0
    try:
        if comparison.grid:
            places = [(n, p) for n in numbers for p in range(len(points[n]))]
            search = [estimates[n][p].of(comparison.task(n, comparison.seeds[0], points[n][p])) for n, p in places]
            tried, took = run_tasks(search, folder, federations, callback, **spread)
            for n in numbers:
                scores = [validation_score(row) for (m, _), row in zip(places, tried) if m == n]
                chosen[n] = scores.index(max(scores))
            rejected = tuple(task.name for task, (n, p) in zip(search, places) if p != chosen[n])
            write_comparison(folder, replace(as_given, rejected=rejected))
        tasks = [
            estimates[n][chosen[n]].of(comparison.task(n, seed, points[n][chosen[n]]))
            for seed in comparison.seeds
            for n in numbers
        ]
        order = sorted(tasks, key=lambda task: (task.row["seed"], -task.seconds))  # longest first within a seed
        rows, more = run_tasks(order, folder, federations, callback, **spread)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; no result is lost: `undrift compare --resume {folder}` continues") from None
    by_task = {task.name: {**row, **task.row} for task, row in zip(order, rows)}
    return Compared([by_task[task.name] for task in tasks], folder, took + more, tried)


def with_proxy(comparison: Comparison) -> Comparison:
    """Set a proxy share for all methods if one of them needs a proxy set and none asks for one: so all train on the
    same data."""
    from undrift.experiment.setup import composition

    shared = dict(comparison.options)
    options = [from_keywords({**shared, **e.own_options, "method": e.method}) for e in comparison.entries]
    needs = {need for own in options for part in composition(own, None).parts for need in part.needs}
    if "proxy" in needs and not any(own.proxy for own in options):
        shared["proxy"] = PROXY
    return replace(comparison, options=shared)


def check_and_estimate(
    comparison: Comparison, federations: Federations, callback: StudyCallback
) -> list[list[Estimate]]:
    """Dry run of every method at every point of the grid: what is expected of the runs, by method and point."""
    points = [(n, point) for n, entry in enumerate(comparison.entries) for point in comparison.points(entry)]
    tasks = [comparison.task(n, comparison.seeds[0], point) for n, point in points]
    found: list[list[Estimate]] = [[] for _ in comparison.entries]
    estimates = dry_run(tasks, federations, callback)
    if note := weighting_note({comparison.entries[n].label: e.weighting for (n, _), e in zip(points, estimates)}):
        callback.on_message(note)
    for (n, _), estimate in zip(points, estimates):
        if comparison.grid and not estimate.has_global_model:
            raise BadRequest(
                "--grid chooses by the global model on validation data, and "
                f"{comparison.entries[n].label} has no global model; leave out one of them"
            )
        found[n].append(estimate)
    return found


def remove_unused(folder: Path) -> None:
    """Remove the folder of a comparison that was refused before its first run."""
    if [path.name for path in folder.iterdir()] == ["compare.toml"]:
        (folder / "compare.toml").unlink()
        folder.rmdir()
        with contextlib.suppress(OSError):  # the parent holds other folders
            folder.parent.rmdir()


def how_to_spread(comparison: Comparison) -> tuple[Comparison, dict[str, Any]]:
    """How the runs share the machine. With an engine of several workers, or on a GPU, there is one run at a time.
    Otherwise `workers` is the number of runs at a time, and the runs themselves get neither `engine` nor `workers`."""
    from undrift.experiment.network import chosen_device

    engine, device, workers = (comparison.options.get(name) for name in ("engine", "device", "workers"))
    if engine in ("processes", "ray") or chosen_device(device or "auto").type != "cpu":
        return comparison, {"together": False}
    options = {key: value for key, value in comparison.options.items() if key not in ("engine", "workers")}
    together = True if workers and workers > 1 else None
    return replace(comparison, options=options), {"cores": workers, "together": together}


def validation_value(row: Row) -> float | None:
    """The headline of the global model on validation data."""
    value: float | None = (row["stages"]["G"] or {}).get(f"validation_{Headline.of(row).name}")
    return value


def validation_score(row: Row) -> float:
    """The larger the better; −∞ where there is none, so that a failed run is never chosen."""
    value = validation_value(row)
    return -math.inf if value is None else Headline.of(row).sign * float(value)
