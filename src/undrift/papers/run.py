"""Running a preset, keeping its results, and the page that shows them."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

import undrift
from undrift.core.errors import BadRequest
from undrift.experiment.options import from_keywords
from undrift.experiment.tables import markdown_table
from undrift.papers import papers
from undrift.papers import table as paper_table
from undrift.report import page, plots
from undrift.store.record import rows_of
from undrift.study.tasks import Federations, Row, StudyCallback, finish


def home(asked: papers.Scaled, out: str | Path | None, resume: bool) -> Path:
    """The folder of a preset's runs, with what was asked for in paper.toml."""
    from undrift.experiment.folders import free_name, next_free

    told = {
        "preset": asked.preset.name,
        "scale": asked.scale,
        "options": {k: v for k, v in asked.options.items() if v is not None},
    }
    if out is None:
        if resume:
            raise BadRequest("--resume needs the folder: add --out FOLDER")
        folder = next_free(Path("runs"), f"{asked.preset.name.replace('/', '-')}-{asked.scale}")
    else:
        folder = Path(out)
        if resume:
            if not (folder / "paper.toml").exists():
                raise BadRequest(f"{folder} does not hold a preset's runs; leave out --resume to begin there")
            if (folder / "paper.toml").read_text() != tomli_w.dumps(told):
                raise BadRequest(f"{folder} was begun with other options; resume it with the same ones")
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadRequest(f"{folder} is taken; {free_name(folder)} is free, and --resume goes on with it")
        folder.mkdir(parents=True, exist_ok=True)
    (folder / "paper.toml").write_text(tomli_w.dumps(told))
    return folder


def run(
    asked: papers.Scaled,
    folder: Path,
    callback: StudyCallback | None = None,
    workers: int | None = None,
    results: Path | None = None,
) -> tuple[list[Row], float]:
    """Every cell; each row has the numbers that were read off its run. `results` gets a line per finished run."""
    federations = Federations()
    keeper = Keeper(asked, callback or StudyCallback(), results)
    tasks = asked.tasks(expected(asked, federations, keeper))
    together = True if workers is not None and workers > 1 else None
    place = {column.name: number for number, column in enumerate(asked.columns)}  # few federations at a time
    order = sorted(tasks, key=lambda task: (task.row["seed"], place[task.row["column"]], -task.seconds))
    rows, took = finish(order, folder, federations, keeper, workers, together)
    by_name = {task.name: row for task, row in zip(order, rows)}
    return [with_values(asked.preset, by_name[task.name]) for task in tasks], took


def expected(asked: papers.Scaled, federations: Federations, callback: StudyCallback) -> dict[tuple[str, str], float]:
    """Every cell is set up once: what would be refused is found before the first hour is spent."""
    from undrift.experiment.engines import expected_seconds
    from undrift.experiment.setup import prepare

    found, said = {}, set[tuple[str, str]]()
    for task in replace(asked, seeds=asked.seeds[:1]).tasks():
        place = (task.row["row"], task.row["column"])
        federations.keep([task])
        try:
            setup = prepare(from_keywords({**task.settings, "method": task.method}), federations.of(task.settings))
        except BadRequest as error:
            raise BadRequest(f"{asked.preset.name}, {' in '.join(place)}: {error}") from None
        for sentence in setup.notices:
            if (place[0], sentence) not in said:
                callback.note(f"{place[0]}: {sentence}")
                said.add((place[0], sentence))
        found[place] = expected_seconds(setup)
    return found


def with_values(preset: papers.Preset, row: Row) -> Row:
    if "failed" in row:
        return {**row, "values": {}}
    folder = Path(row["run"])
    values = {value.name: paper_table.read_off(lambda *q: rows_of(folder, *q), value) for value in preset.values}
    return {**row, "values": {name: found for name, found in values.items() if found is not None}}


@dataclass
class Keeper(StudyCallback):
    """Passes everything on, and appends a result when a run ends."""

    asked: papers.Scaled
    callback: StudyCallback
    results: Path | None

    def note(self, sentence: str) -> None:
        self.callback.note(sentence)

    def begin(self, tasks: Sequence[Any], plan: str, at_once: int) -> None:
        self.callback.begin(tasks, plan, at_once)

    def moved(self, task: Any, round: int, accuracy: float | None) -> None:
        self.callback.moved(task, round, accuracy)

    def tick(self) -> None:
        self.callback.tick()

    def ended(self, task: Any, row: Row) -> None:
        self.callback.ended(task, row)
        if self.results is None or "failed" in row:
            return
        self.results.parent.mkdir(parents=True, exist_ok=True)
        with self.results.open("a") as file:
            print(json.dumps(result(self.asked, task, with_values(self.asked.preset, row))), file=file, flush=True)


def result(asked: papers.Scaled, task: Any, row: Row) -> Row:
    """What is kept of a run in the repository: its numbers, its curve, and where they come from."""
    curve = rows_of(
        Path(row["run"]),
        "SELECT value FROM metrics WHERE stage='G' AND data='global' AND metric='accuracy' ORDER BY round",
    )
    return {
        "preset": asked.preset.name, "scale": asked.scale, "row": row["row"], "column": row["column"], "seed": row["seed"],
        "method": row["method"], "rounds": row["rounds"], "seconds": round(row["seconds"], 2), "accuracy": row["accuracy"],
        "values": {name: [round(number, 6) for number in numbers] for name, numbers in row["values"].items()},
        "curve": [round(value, 4) for (value,) in curve], "reductions": list(asked.reductions),
        "options": {key: value for key, value in task.settings.items() if isinstance(value, (str, int, float, bool))},
        "model_sha256": row["model_sha256"], "undrift": undrift.__version__, "torch": torch_version(), "machine": machine(),
        "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


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


# ---- pages -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A run as a curve of the page."""

    label: str
    folder: Path

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return rows_of(self.folder, query, values)


def write_page(asked: papers.Scaled, rows: Sequence[Row], folder: Path) -> Path:
    preset = asked.preset
    sections = opening(preset, rows, asked.reductions)
    for column in asked.columns:
        runs = [
            Line(row["row"], Path(row["run"])) for row in rows if row["column"] == column.name and "failed" not in row
        ]
        sections.append(
            (f"curves-{papers.safe(column.name)}", plots.bands(runs, "accuracy", ("G", "global")), column.name)
        )
    repeated = [f"undrift run {row['run']}/run.toml" for row in rows]
    command = f"undrift paper run {preset.name} --scale {asked.scale}"
    sections.append(("commands", ("pre", "\n".join([command, "", *repeated[:20]])), "To repeat it"))
    page.write(folder / "index.html", f"{preset.name}: {preset.title}", sections)
    return folder / "index.html"


def opening(preset: papers.Preset, rows: Sequence[Row], reductions: Sequence[str]) -> list[page.Section]:
    lines = [preset.source, *([preset.about] if preset.about else [])]
    sections: list[page.Section] = [("about", "\n".join(lines))]
    if reductions:
        smaller = ["The printed numbers are not comparable; this is smaller than the paper:", *reductions]
        sections.append(("reductions", "\n".join(smaller), "Less than the paper"))
    for number, (name, table) in enumerate(paper_table.tables(preset, rows)):
        sections.append((f"table-{number}", table, f"{name}: ours / printed"))
    if preset.claims:
        sections.append(("claims", paper_table.claim_table(paper_table.verdicts(preset, rows)), "Claims"))
    return sections


# ---- kept results ----------------------------------------------------------------------------------------------------


def kept(file: Path) -> tuple[papers.Preset, list[Row]]:
    if not file.exists():
        raise BadRequest(f"there is no file {file}; `undrift paper run NAME --results {file}` writes it")
    try:
        rows = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
        preset = papers.load(rows[0]["preset"])
    except (json.JSONDecodeError, KeyError, IndexError) as error:
        raise BadRequest(f"{file} does not hold results of `undrift paper run`: {error}") from None
    place = {line.name: number for number, line in enumerate(preset.lines)}
    return preset, sorted(paper_table.newest(rows), key=lambda row: place.get(row["row"], len(place)))


def markdown_of(file: Path) -> str:
    preset, rows = kept(file)
    less = list(dict.fromkeys(sentence for row in rows for sentence in row["reductions"]))
    where = sorted({f"{row['machine']}, undrift {row['undrift']}, torch {row['torch']}" for row in rows})
    days = sorted({row["date"] for row in rows})
    scale = " and ".join(dict.fromkeys(row["scale"] for row in rows))
    blocks = [f"### {file.stem}: {preset.title}", f"{preset.name} at {scale} scale. {preset.source}"]
    blocks.append(f"{len(rows)} runs, {sum(row['seconds'] for row in rows) / 60:.0f} minutes of rounds; {'; '.join(where)}; "
                  f"{days[0]}{f' to {days[-1]}' if len(days) > 1 else ''}.")  # fmt: skip
    if less:
        smaller = sum(bool(row["reductions"]) for row in rows)
        which = "" if smaller == len(rows) else f" ({smaller} of {len(rows)} runs)"
        listed = "\n".join(f"- {one}" for one in less)
        blocks.append(f"Less than the paper{which}, so the printed numbers are not comparable:\n{listed}")
    for name, table in paper_table.tables(preset, rows):
        blocks.append(f"{name}, rounds in brackets\n\n{markdown_table(with_rounds(preset, rows, table))}")
    if preset.claims:
        blocks.append(markdown_table(paper_table.claim_table(paper_table.verdicts(preset, rows)), words=(0, 1, 2)))
    return "\n\n".join(blocks)


def with_rounds(preset: papers.Preset, rows: Sequence[Row], table: list[list[str]]) -> list[list[str]]:
    """Rounds beside each number: results of several lengths may stand in one table."""
    length = {(row["row"], row["column"]): row["rounds"] for row in rows}
    head, *lines = table
    return [head, *[[line[0], *(f"{text} ({length[line[0], column]})" if (line[0], column) in length else "—"
                                for text, column in zip(line[1:], head[1:]))] for line in lines]]  # fmt: skip


def write_results_page(file: Path, path: Path) -> None:
    preset, rows = kept(file)
    sections = opening(preset, rows, list(dict.fromkeys(sentence for row in rows for sentence in row["reductions"])))
    for column in dict.fromkeys(row["column"] for row in rows):
        fig = curves([row for row in rows if row["column"] == column])
        sections.append((f"curves-{papers.safe(column)}", fig, column))
    page.write(path, f"{preset.name}: {preset.title}", sections)


def curves(rows: Sequence[Row]) -> Any:
    """Stage G over the rounds, one line per kept result."""
    several = len({row["seed"] for row in rows}) > 1
    fig = plots.figure(plots.STAGES["G", "global"], "round", "accuracy")
    for row in rows:
        name = f"{row['row']}, seed {row['seed']}" if several else row["row"]
        fig.add_scatter(x=list(range(1, len(row["curve"]) + 1)), y=row["curve"], mode="lines", name=name)
    return fig
