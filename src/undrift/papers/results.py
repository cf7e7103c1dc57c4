"""Results files: one JSON line per finished run of a preset, and the tables and claims they give."""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Len

import undrift
from undrift.core.errors import BadRequest
from undrift.core.files import read_lines
from undrift.core.schema import Count, Name, Seed, check, setting
from undrift.experiment.tables import markdown_table
from undrift.papers import claims, papers
from undrift.papers import table as paper_table
from undrift.papers.figures import kept_series
from undrift.papers.reductions import condensed
from undrift.papers.scales import Scaled
from undrift.papers.values import of_curve, with_values
from undrift.store.durable import append_line, make_folder
from undrift.store.record import rows_of
from undrift.study.tasks import Row, StudyCallback, Task
from undrift.study.verdict import counted


@dataclass(frozen=True)
class ResultLine:
    """A line of a results file. The other keys are kept and not read again."""

    preset: Name = setting(..., "name of the preset")
    scale: Name = setting(..., "its scale")
    row: Name = setting(..., "the row")
    column: Name = setting(..., "the column")
    seed: Seed = setting(..., "seed of the run")
    rounds: Count = setting(..., "rounds of the run")
    seconds: Annotated[float, Ge(0)] = setting(..., "wall time of the rounds")
    values: dict[str, Annotated[list[float], Len(2, 2)]] = setting(..., "[number, std over its window] by name")
    curve: list[float] = setting([], "headline (accuracy) of the global model by round")
    series: dict[str, dict[str, Any]] = setting({}, "what figures draw besides: `x` and `y` by name")
    reductions: list[str] = setting([], "what differs from the paper, one sentence each")
    until_clear: Annotated[list[Count], Len(2, 2)] | None = setting(
        None, "first and largest number of seeds of --until-clear"
    )
    undrift: str = setting("", "version")
    torch: str = setting("", "version of torch")
    machine: str = setting("", "processor and cores")
    date: str = setting("", "day of the run")


@dataclass
class ResultWriter(StudyCallback):
    """Passes every call on, and appends a line to `results` when a run ends."""

    scaled: Scaled
    callback: StudyCallback
    results: Path | None

    def on_message(self, sentence: str) -> None:
        self.callback.on_message(sentence)

    def on_start(self, tasks: Sequence[Task], plan: str, at_once: int) -> None:
        self.callback.on_start(tasks, plan, at_once)

    def on_round(self, task: Task, round: int, headline: float | None) -> None:
        self.callback.on_round(task, round, headline)

    def on_tick(self) -> None:
        self.callback.on_tick()

    def on_row(self, task: Task, row: Row) -> None:
        self.callback.on_row(task, row)
        if self.results is None or "failed" in row:
            return
        make_folder(self.results.parent)
        append_line(self.results, json.dumps(result_line(self.scaled, task, row)))


def result_line(scaled: Scaled, task: Task, row: Row) -> Row:
    """A line of a results file: the numbers and the curve of a run, its settings, versions and machine. Presets that share
    the run find theirs too."""
    showing = papers.showing(scaled.preset.runs_name) or (scaled.preset,)
    values = {name: pair for preset in showing for name, pair in with_values(preset, row)["values"].items()}
    drawn = [figure for preset in showing for figure in preset.figures]
    asked = "SELECT value FROM metrics WHERE stage=? AND data=? AND metric=? ORDER BY round"
    curves = [
        [round(value, 4) for (value,) in rows_of(Path(row["run"]), asked, where)]
        for where in (("G", "global", scaled.preset.headline.name), ("train", "train", "loss"))
    ]
    return {
        "preset": scaled.preset.runs_name, "scale": scaled.scale, "row": row["row"], "column": row["column"], "seed": row["seed"],
        "method": row["method"], "rounds": row["rounds"], "seconds": round(row["seconds"], 2), "accuracy": row["accuracy"],
        **({"headline": row["headline"]} if "headline" in row else {}),
        "values": {name: [round(number, 6) for number in numbers] for name, numbers in values.items()},
        "curve": curves[0], "training_loss": curves[1], "series": kept_series(drawn, Path(row["run"])),
        "reductions": list(scaled.reductions),
        "options": plain_options(task),
        **({"until_clear": list(scaled.until_clear)} if scaled.until_clear else {}),
        "model_sha256": row["model_sha256"], "undrift": undrift.__version__, "torch": torch_version(), "machine": machine(),
        "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def plain_options(task: Task) -> dict[str, Any]:
    """The options of a run that a line keeps."""
    return {key: value for key, value in task.settings.items() if isinstance(value, (str, int, float, bool))}


def torch_version() -> str:
    import importlib.metadata

    return importlib.metadata.version("torch")


def machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        model = ""
    return f"{model or platform.processor() or platform.machine()}, {os.cpu_count()} cores"


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_results(file: Path, preset: papers.Preset | None = None) -> tuple[papers.Preset, list[Row]]:
    """The preset of a results file, and its best row per cell and seed, in the order of the preset. `preset`: one that shares
    these runs, and may show some of them only."""
    preset, rows = every_line(file, preset)
    place = {row.name: number for number, row in enumerate(preset.rows)}
    return preset, sorted(paper_table.newest(rows), key=lambda row: place.get(row["row"], len(place)))


def every_line(file: Path, preset: papers.Preset | None = None) -> tuple[papers.Preset, list[Row]]:
    """The preset of a results file, and all its lines, checked."""
    if not file.exists():
        raise BadRequest(f"there is no file {file}; `undrift paper run NAME --results {file}` writes it")
    rows = checked_lines(file)
    if not rows:
        raise BadRequest(f"{file} holds no results; `undrift paper run NAME --results {file}` writes them")
    if preset is None:
        preset = papers.load(rows[0]["preset"])
        for row in rows:
            papers.by_name("row", preset.rows, [row["row"]])
            papers.by_name("column", preset.columns, [row["column"]])
    else:
        cells = {(row.name, column.name) for row in preset.rows for column in preset.columns}
        rows = [row for row in rows if row["preset"] == preset.runs_name and (row["row"], row["column"]) in cells]
    defaults = {"curve": [], "reductions": [], **dict.fromkeys(("undrift", "torch", "machine", "date"), "unknown")}
    rows = [{**defaults, **row} for row in rows]
    return preset, [{**row, "values": recomputed(preset, row)} for row in rows]


def checked_lines(file: Path) -> list[Row]:
    """All lines of a results file, checked."""
    lines = enumerate(read_lines(file), 1)
    return [check(ResultLine, line, f"{file}, line {number}", more=True) for number, line in lines]


def finished(preset: papers.Preset, tasks: Sequence[Task], file: Path | None) -> Iterator[tuple[Task, Row]]:
    """The tasks that a results file already holds, with their lines: the same cell, seed, method and options."""
    if file is None or not file.exists() or not file.stat().st_size:
        return
    _, rows = every_line(file, preset)
    for task in tasks:
        asked = {**task.row, "options": plain_options(task)}
        spelled = str(task.method).replace(" ", "")
        same = (row for row in rows if all(row.get(key) == value for key, value in asked.items()))
        if row := next((row for row in same if row["method"].replace(" ", "") == spelled), None):
            yield task, row


def recomputed(preset: papers.Preset, row: Row) -> dict[str, list[float]]:
    """The preset's values of a results line: from its curve where that is enough, so that a changed window needs no new
    run, otherwise as they were written."""
    kept = row.get("values") or {}
    values = {
        v.name: of_curve(row.get(v.kept_curve(preset.headline) or "", ()), v) or kept.get(v.name) for v in preset.values
    }
    return {name: pair for name, pair in values.items() if pair is not None}


def results_markdown(file: Path) -> str:
    """The tables and claims of a results file."""
    preset, rows = read_results(file)
    less = condensed(sentence for row in rows for sentence in row["reductions"])
    where = sorted({f"{row['machine']}, undrift {row['undrift']}, torch {row['torch']}" for row in rows})
    days = sorted({row["date"] for row in rows})
    scale = " and ".join(dict.fromkeys(row["scale"] for row in rows))
    blocks = [f"### {file.stem}: {preset.title}", f"{preset.name} at {scale} scale. {preset.source}"]
    period = days[0] + (f" to {days[-1]}" if len(days) > 1 else "")
    minutes = sum(row["seconds"] for row in rows) / 60
    blocks.append(f"{len(rows)} runs, {minutes:.0f} minutes of rounds; {'; '.join(where)}; {period}.")
    if less:
        smaller = sum(bool(row["reductions"]) for row in rows)
        which = "" if smaller == len(rows) else f" ({smaller} of {len(rows)} runs)"
        listed = "\n".join(f"- {sentence}" for sentence in less)
        blocks.append(f"Less than the paper{which}, so the printed numbers are not comparable:\n{listed}")
    for name, table in paper_table.tables(preset, rows):
        blocks.append(f"{name}, rounds in brackets\n\n{markdown_table(with_rounds(preset, rows, table))}")
    if preset.claims:
        blocks.append(markdown_table(claims.claim_table(claims.outcomes(preset, rows)), words=(0, 1, 2)))
    return "\n\n".join(blocks)


def with_rounds(preset: papers.Preset, rows: Sequence[Row], table: list[list[str]]) -> list[list[str]]:
    """Add the rounds to each number, and its seeds where other cells have more: a table can have results of several lengths,
    and ± over the rounds of one seed is not ± over seeds."""
    length = {(row["row"], row["column"]): row["rounds"] for row in rows}
    seeds = Counter((row["row"], row["column"]) for row in rows)
    most = max(seeds.values(), default=0)
    about = {
        cell: f"{rounds}" + (f"; {counted(seeds[cell], 'seed')}" if seeds[cell] < most else "")
        for cell, rounds in length.items()
    }
    head, *lines = table
    longer = [head]
    for name, *cells in lines:
        pairs = zip(cells, head[1:])
        longer.append([name, *(f"{text} ({about[name, c]})" if (name, c) in about else "—" for text, c in pairs)])
    return longer
