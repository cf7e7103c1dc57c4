"""Several methods on the same federation, the same cohorts and the same start.

None of these depends on the method, so runs with the same seed differ in the method alone and may be compared in pairs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest, unknown
from undrift.experiment.options import FIELDS, from_keywords
from undrift.federation.federation import Federation
from undrift.study.comparison import Comparison, Entry, in_file, note, read, told
from undrift.study.tasks import Federations, Row, StudyCallback, finish

PROXY = 0.02
OF_ALL = ("method", "seed", "data_seed", "out", "force", "engine", "workers", "memory")  # not a method's own to choose


@dataclass(frozen=True)
class Compared:
    """Rows as `--json` prints them, where the runs are, and every point of the grid that was tried."""

    rows: list[Row]
    folder: Path
    seconds: float
    tried: list[Row] = field(default_factory=list)

    def __str__(self) -> str:
        from undrift.experiment.tables import text_table
        from undrift.study.standings import standings_table, table

        return f"{text_table(table(self.rows))}\n\n{text_table(standings_table(self.rows))}"

    def report(self, path: str | Path | None = None) -> Path:
        """Write the page; by default into the folder of the runs."""
        from undrift.report.report import write

        return write(Path(path) if path else self.folder / "index.html", [self.folder])


def compare(
    methods: Sequence[Any], federation: Federation | None = None, *, seeds: int = 1, repeat: int | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None, out: str | Path | None = None, resume: bool = False,
    callback: StudyCallback | None = None, **options: Any,
) -> Compared:  # fmt: skip
    """Run every method on the same federation. `methods`: texts, parts, methods, or (one of these, own options).

    `seeds` varies run and federation, `repeat` the run alone; `grid={"lr": [0.01, 0.1]}` chooses per method on validation
    data of the first seed. `resume=True` finishes what `out` holds."""
    entries = [
        Entry(*m) if isinstance(m, tuple) and len(m) == 2 and isinstance(m[1], dict) else Entry(m) for m in methods
    ]
    asked = planned(entries, options, seeds, repeat, grid or {})
    if federation is not None and len({data for _, data in asked.seeds}) > 1:
        raise BadRequest("a federation that is given cannot vary with the seed; use repeat instead of seeds")
    return carried_out(asked, home(asked, out, resume), callback, federation)


def planned(
    entries: Sequence[Entry],
    options: Mapping[str, Any],
    seeds: int,
    repeat: int | None,
    grid: Mapping[str, Sequence[Any]],
) -> Comparison:
    """The comparison that is asked for, refused where it makes no sense."""
    if seeds < 1 or (repeat is not None and repeat < 1):
        raise BadRequest("--seeds and --repeat must be at least 1")
    if repeat is not None and seeds > 1:
        raise BadRequest("--seeds varies the federation, --repeat keeps it; give one of them")
    if not entries:
        raise BadRequest("name at least one method, such as fedavg")
    for entry in entries:
        for key in entry.own:
            if key in OF_ALL:
                raise BadRequest(f"--{key.replace('_', '-')} belongs to the whole comparison, not to {entry.method}")
    labels = [entry.label for entry in entries]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise BadRequest(f"{twice[0]} is named twice; a comparison of a run with itself says nothing")
    for key, values in grid.items():
        if key not in FIELDS or key in OF_ALL:
            raise unknown("option for --grid", key, [name for name in FIELDS if name not in OF_ALL])
        if not values:
            raise BadRequest(f"--grid {key} has no values; write --grid {key}=0.01,0.1")
    options = dict(options)
    first = options.pop("seed", 0)
    data_seed = options.pop("data_seed", None)
    pairs = [
        (seed, data_seed if data_seed is not None else first if repeat else seed)
        for seed in range(first, first + (repeat or seeds))
    ]
    if grid and not all({**options, **entry.own}.get("validation") for entry in entries):
        raise BadRequest("--grid chooses on validation data, and there is none; add --validation 0.1")
    return Comparison(tuple(entries), options, tuple(pairs), dict(grid))


def home(asked: Comparison, out: str | Path | None, resume: bool) -> Path:
    """The comparison's folder, made for it or found again, with its compare.toml."""
    from undrift.experiment.folders import free_name, next_free

    if resume:
        folder = Path(out or "")
        before = read(folder)
        if before.options != told(asked)["options"] or before.grid != told(asked)["grid"]:
            raise BadRequest(f"the options are not those of {folder}; resume it with the same ones, or start another")
        mine, theirs = (
            [entry.label for entry in entries] for entries in (in_file(told(asked)["methods"]), before.entries)
        )
        if mine[: len(theirs)] != theirs:
            raise BadRequest(f"{folder} compares {', '.join(theirs)}, in this order; more may follow, none be left out")
        if other := [seed for seed, data in asked.seeds if dict(before.seeds).get(seed, data) != data]:
            raise BadRequest(f"seed {other[0]} ran on another federation in {folder}: "
                             "--seeds varies the federation, --repeat and --data-seed keep it; resume it as it was begun")  # fmt: skip
    elif out is None:
        data = Path(str(asked.options.get("data", "digits"))).stem
        folder = next_free(Path("runs"), f"{data}-compare")
    else:
        folder = Path(out)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadRequest(f"{folder} is taken; {free_name(folder)} is free, and --resume goes on with it")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadRequest(f"{folder} cannot be written: {error.strerror or error}; choose another --out") from None
    note(folder, asked)
    return folder


def carried_out(
    asked: Comparison, folder: Path, callback: StudyCallback | None = None, federation: Federation | None = None
) -> Compared:
    """Run what is not there yet: where there is a grid its points on the first seed, then every method on every seed."""
    federations, as_asked = Federations(federation), asked
    try:
        asked, seconds = ready(asked, federations, callback or StudyCallback())
    except BadRequest:
        withdrawn(folder)
        raise
    asked, how = manner(asked)
    numbers = range(len(asked.entries))
    chosen, tried, took = [dict[str, Any]() for _ in numbers], list[Row](), 0.0
    try:
        if asked.grid:
            points = [(n, point) for n in numbers for point in asked.points(asked.entries[n])]
            search = [asked.task(n, asked.seeds[0], point, seconds[n]) for n, point in points]
            tried, took = finish(search, folder, federations, callback, **how)
            for n in numbers:
                mine = [(validated(row), point) for (m, point), row in zip(points, tried) if m == n]
                chosen[n] = max(mine, key=lambda one: one[0])[1]
            rejected = tuple(task.name for task, (n, point) in zip(search, points) if point != chosen[n])
            note(folder, replace(as_asked, rejected=rejected))
        tasks = [asked.task(n, seed, chosen[n], seconds[n]) for seed in asked.seeds for n in numbers]
        order = sorted(tasks, key=lambda task: (task.row["seed"], -task.seconds))  # longest first within a seed
        rows, more = finish(order, folder, federations, callback, **how)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; nothing is lost: `undrift compare --resume {folder}` goes on") from None
    by_task = {task.name: row for task, row in zip(order, rows)}
    return Compared([by_task[task.name] for task in tasks], folder, took + more, tried)


def withdrawn(folder: Path) -> None:
    """What was refused before its first run leaves no folder behind."""
    if [path.name for path in folder.iterdir()] == ["compare.toml"]:
        (folder / "compare.toml").unlink()
        folder.rmdir()
        with contextlib.suppress(OSError):  # others live there
            folder.parent.rmdir()


def manner(asked: Comparison) -> tuple[Comparison, dict[str, Any]]:
    """How the runs are spread. An engine that spreads itself, or a GPU, takes one run at a time; otherwise `workers` is how
    many runs there are at a time, and the runs themselves are not told."""
    from undrift.experiment.network import chosen_device

    engine, device, workers = (asked.options.get(name) for name in ("engine", "device", "workers"))
    if engine in ("processes", "ray") or chosen_device(device or "auto").type != "cpu":
        return asked, {"together": False}
    options = {key: value for key, value in asked.options.items() if key not in ("engine", "workers")}
    return replace(asked, options=options), {"cores": workers, "together": True if workers and workers > 1 else None}


def validated(row: Row) -> float:
    value = (row["stages"]["G"] or {}).get("validation_accuracy")
    return -1.0 if value is None else float(value)


def ready(asked: Comparison, federations: Federations, callback: StudyCallback) -> tuple[Comparison, list[float]]:
    """Every method is set up once: what would be refused is found before the first hour is spent. A proxy set is carved
    for all when one method asks for it. Also the seconds of training that each run is expected to take."""
    from undrift.experiment.engines import expected_seconds
    from undrift.experiment.setup import composition, prepare

    options = dict(asked.options)
    wanted = [from_keywords({**options, **entry.own, "method": entry.method}) for entry in asked.entries]
    needs = {need for one in wanted for part in composition(one, None).parts for need in part.needs}
    if "proxy" in needs and not any(one.proxy for one in wanted):
        options["proxy"] = PROXY
    asked = replace(asked, options=options)
    seconds = []
    for number, entry in enumerate(asked.entries):
        for point in asked.points(entry):
            settings = asked.task(number, asked.seeds[0], point).settings
            setup = prepare(from_keywords({**settings, "method": entry.method}), federations.of(settings))
        for sentence in setup.notices:
            callback.note(f"{entry.label}: {sentence}")
        if asked.grid and setup.plan.private is not None:
            raise BadRequest(
                f"--grid chooses by the global model's validation accuracy, and {entry.label} has no global model"
            )
        try:
            seconds.append(expected_seconds(setup))
        except Exception:  # the user's model or loss raises: let it do so in a client's hands, which says who and when
            seconds.append(0.0)
    return asked, seconds
