"""Run a preset, or say how long that takes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import tomli_w

from undrift.core.errors import BadRequest
from undrift.papers import claims
from undrift.papers.paper_file import paper_file
from undrift.papers.results import ResultWriter, checked_lines, finished
from undrift.papers.scales import Scaled
from undrift.papers.values import with_values
from undrift.store.durable import make_folder, write_file
from undrift.study.dry_run import Estimate, dry_run
from undrift.study.tasks import Federations, Row, StudyCallback, Task, run_tasks
from undrift.study.verdict import Looks

Cell = tuple[str, str]  # row, column


def preset_folder(scaled: Scaled, out: str | Path | None, resume: bool) -> Path:
    """The folder of a preset's runs, new or to be resumed, with its settings in paper.toml."""
    from undrift.experiment.folders import free_name, next_free

    settings = {
        "preset": scaled.preset.runs_name,
        "scale": scaled.scale,
        "options": {k: v for k, v in scaled.options.items() if v is not None},
    }
    if out is None:
        if resume:
            raise BadRequest("--resume needs the folder: add --out FOLDER")
        folder = next_free(Path("runs"), f"{scaled.preset.name.replace('/', '-')}-{scaled.scale}")
    else:
        folder = Path(out)
        if resume:
            if not (folder / "paper.toml").exists():
                raise BadRequest(f"{folder} does not hold a preset's runs; leave out --resume to start there")
            path = folder / "paper.toml"
            if paper_file(path) != settings:
                raise BadRequest(f"{folder} was started with other options; resume it with the same ones")
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadRequest(f"{folder} is taken; use {free_name(folder)}, or add --resume to finish what it holds")
        make_folder(folder)
    write_file(folder / "paper.toml", tomli_w.dumps(settings).encode())
    return folder


def run(
    scaled: Scaled,
    folder: Path,
    callback: StudyCallback | None = None,
    workers: int | None = None,
    results: Path | None = None,
    missing: bool = False,
) -> tuple[list[Row], float]:
    """Run every cell. Each row has the preset's numbers of its run. `results` gets a line per finished run. `missing`: a run
    that `results` already holds is taken from there."""
    federations = Federations()
    writer = ResultWriter(scaled, callback or StudyCallback(), results)
    tasks = scaled.tasks()
    rows = {task.name: line for task, line in finished(scaled.preset, tasks, results)} if missing else {}
    expected = cell_estimates(scaled, federations, writer, {cell_of(task) for task in tasks if task.name not in rows})
    left = [expected[cell_of(task)].of(task) for task in tasks if task.name not in rows]
    together = True if workers is not None and workers > 1 else None
    place = {column.name: number for number, column in enumerate(scaled.columns)}  # few federations at a time
    order = sorted(left, key=lambda task: (task.row["seed"], place[task.row["column"]], -task.seconds))
    new, took = run_tasks(order, folder, federations, writer, workers, together) if order else ([], 0.0)
    looked = {"until_clear": list(scaled.until_clear)} if scaled.until_clear else {}
    rows |= {task.name: {**with_values(scaled.preset, row), **looked} for task, row in zip(order, new)}
    return [rows[task.name] for task in tasks], took


def cell_of(task: Task) -> Cell:
    return task.row["row"], task.row["column"]


def cell_estimates(
    scaled: Scaled, federations: Federations, callback: StudyCallback, cells: Collection[Cell]
) -> dict[Cell, Estimate]:
    """What is expected of one run of these cells, from a dry run of the first seed."""
    first_seed = [task for task in replace(scaled, seeds=scaled.seeds[:1]).tasks() if cell_of(task) in cells]
    estimates = dry_run(first_seed, federations, callback, scaled.preset.name)
    return {cell_of(task): estimate for task, estimate in zip(first_seed, estimates)}


def estimate(scaled: Scaled, callback: StudyCallback | None = None) -> dict[Cell, float]:
    """Expected minutes of training per cell, all its seeds together, on one core."""
    cells = [cell_of(task) for task in scaled.tasks()]
    expected = cell_estimates(scaled, Federations(), callback or StudyCallback(), cells)
    return {cell: len(scaled.seeds) * found.seconds / 60 for cell, found in expected.items()}


def run_until_clear(
    scaled: Callable[[int], Scaled],
    looks: Looks,
    folder: Path,
    callback: StudyCallback | None = None,
    workers: int | None = None,
    results: Path | None = None,
    missing: bool = False,
) -> tuple[Scaled, list[Row], float]:
    """Run a preset with more and more seeds until every claim is decided or the largest number is reached. `scaled`: the
    preset with a number of seeds. Claims on cells that are not run do not count."""
    check_looks(looks, results)
    seconds = 0.0
    for seeds in range(looks.first, looks.most + 1):
        asked = replace(scaled(seeds), until_clear=(looks.first, looks.most))
        rows, took = run(asked, folder, callback, workers, results, missing)
        seconds += took
        if any("failed" in row for row in rows) or all(one.settled for one in claims.outcomes(asked.preset, rows)):
            break
    return asked, rows, seconds


def check_looks(looks: Looks, results: Path | None) -> None:
    """Refuse to add to results that were looked at in another way: the intervals would not hold."""
    for line in checked_lines(results) if results is not None and results.exists() else ():
        other = line.get("until_clear")
        if other and other != [looks.first, looks.most]:
            raise BadRequest(
                f"{results} was made with --seeds {other[0]} --until-clear {other[1]}, and its intervals hold for that "
                "only; use the same numbers, or another --results"
            )
