"""Run a preset, keep its results, and write the page that shows them."""

from __future__ import annotations

import json
import os
import platform
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from annotated_types import Ge, Len

import undrift
from undrift.core.errors import BadRequest
from undrift.core.files import read_lines, read_toml
from undrift.core.schema import Count, Name, Seed, check, setting
from undrift.experiment.tables import markdown_table
from undrift.papers import claims, figures, papers
from undrift.papers import table as paper_table
from undrift.papers.values import of_curve, with_values
from undrift.report import page, plots
from undrift.report.picture import picture
from undrift.store.durable import append_line, make_folder, write_file
from undrift.store.record import rows_of
from undrift.study.dry_run import dry_run
from undrift.study.tasks import Federations, Row, StudyCallback, Task, run_tasks
from undrift.study.verdict import Looks


def preset_folder(scaled: papers.Scaled, out: str | Path | None, resume: bool) -> Path:
    """The folder of a preset's runs, new or to be resumed, with its settings in paper.toml."""
    from undrift.experiment.folders import free_name, next_free

    settings = {
        "preset": scaled.preset.name,
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
            if check(PaperFile, read_toml(path), str(path)) != settings:
                raise BadRequest(f"{folder} was started with other options; resume it with the same ones")
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadRequest(f"{folder} is taken; use {free_name(folder)}, or add --resume to finish what it holds")
        make_folder(folder)
    write_file(folder / "paper.toml", tomli_w.dumps(settings).encode())
    return folder


def run(
    scaled: papers.Scaled,
    folder: Path,
    callback: StudyCallback | None = None,
    workers: int | None = None,
    results: Path | None = None,
) -> tuple[list[Row], float]:
    """Run every cell. Each row has the preset's numbers of its run. `results` gets a line per finished run."""
    federations = Federations()
    writer = ResultWriter(scaled, callback or StudyCallback(), results)
    first_seed = replace(scaled, seeds=scaled.seeds[:1]).tasks()
    estimates = dry_run(first_seed, federations, writer, scaled.preset.name)
    cells = [(task.row["row"], task.row["column"]) for task in first_seed]
    tasks = scaled.tasks({cell: estimate.seconds for cell, estimate in zip(cells, estimates)})
    together = True if workers is not None and workers > 1 else None
    place = {column.name: number for number, column in enumerate(scaled.columns)}  # few federations at a time
    order = sorted(tasks, key=lambda task: (task.row["seed"], place[task.row["column"]], -task.seconds))
    rows, took = run_tasks(order, folder, federations, writer, workers, together)
    by_name = {task.name: row for task, row in zip(order, rows)}
    looked = {"until_clear": list(scaled.until_clear)} if scaled.until_clear else {}
    return [{**with_values(scaled.preset, by_name[task.name]), **looked} for task in tasks], took


def run_until_clear(
    scaled: Callable[[int], papers.Scaled],
    looks: Looks,
    folder: Path,
    callback: StudyCallback | None = None,
    workers: int | None = None,
    results: Path | None = None,
) -> tuple[papers.Scaled, list[Row], float]:
    """Run a preset with more and more seeds until every claim is decided or the largest number is reached. `scaled`: the
    preset with a number of seeds. Claims on cells that are not run do not count."""
    check_looks(looks, results)
    seconds = 0.0
    for seeds in range(looks.first, looks.most + 1):
        asked = replace(scaled(seeds), until_clear=(looks.first, looks.most))
        rows, took = run(asked, folder, callback, workers, results)
        seconds += took
        if any("failed" in row for row in rows) or all(one.settled for one in claims.outcomes(asked.preset, rows)):
            break
    return asked, rows, seconds


def check_looks(looks: Looks, results: Path | None) -> None:
    """Refuse to add to results that were looked at in another way: the intervals would not hold."""
    lines = results.read_text().splitlines() if results is not None and results.exists() else ()
    for line in lines:
        other = json.loads(line).get("until_clear")
        if other and other != [looks.first, looks.most]:
            raise BadRequest(
                f"{results} was made with --seeds {other[0]} --until-clear {other[1]}, and its intervals hold for that "
                "only; use the same numbers, or another --results"
            )


@dataclass(frozen=True)
class PaperFile:
    """The keys of paper.toml."""

    preset: Name = setting(..., "name of the preset")
    scale: Literal["quick", "paper"] = setting(..., "its scale")
    options: dict[str, Any] = setting(..., "the options of all runs")


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
    curve: list[float] = setting([], "accuracy of the global model by round")
    reductions: list[str] = setting([], "what differs from the paper, one sentence each")
    undrift: str = setting("", "version")
    torch: str = setting("", "version of torch")
    machine: str = setting("", "processor and cores")
    date: str = setting("", "day of the run")


@dataclass
class ResultWriter(StudyCallback):
    """Passes every call on, and appends a line to `results` when a run ends."""

    scaled: papers.Scaled
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
        append_line(self.results, json.dumps(result_line(self.scaled, task, with_values(self.scaled.preset, row))))


def result_line(scaled: papers.Scaled, task: Task, row: Row) -> Row:
    """A line of a results file: the numbers and the curve of a run, its settings, versions and machine."""
    asked = "SELECT value FROM metrics WHERE stage=? AND data=? AND metric=? ORDER BY round"
    curves = [
        [round(value, 4) for (value,) in rows_of(Path(row["run"]), asked, where)]
        for where in (("G", "global", "accuracy"), ("train", "train", "loss"))
    ]
    return {
        "preset": scaled.preset.name, "scale": scaled.scale, "row": row["row"], "column": row["column"], "seed": row["seed"],
        "method": row["method"], "rounds": row["rounds"], "seconds": round(row["seconds"], 2), "accuracy": row["accuracy"],
        "values": {name: [round(number, 6) for number in numbers] for name, numbers in row["values"].items()},
        "curve": curves[0], "training_loss": curves[1], "reductions": list(scaled.reductions),
        "options": {key: value for key, value in task.settings.items() if isinstance(value, (str, int, float, bool))},
        **({"until_clear": list(scaled.until_clear)} if scaled.until_clear else {}),
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
class RunCurve:
    """A run as a curve of the page."""

    label: str
    folder: Path

    def query(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return rows_of(self.folder, query, values)


def write_page(scaled: papers.Scaled, rows: Sequence[Row], folder: Path) -> Path:
    """The page of a preset's runs: tables, claims, curves, and the commands that repeat them."""
    preset = scaled.preset
    sections = opening(preset, rows, scaled.reductions)
    for column in scaled.columns:
        runs = [
            RunCurve(row["row"], Path(row["run"]))
            for row in rows
            if row["column"] == column.name and "failed" not in row
        ]
        sections.append(
            (f"curves-{papers.safe(column.name)}", plots.bands(runs, "accuracy", ("G", "global")), column.name)
        )
    repeated = [f"undrift run {shlex.quote(row['run'] + '/run.toml')}" for row in rows]
    command = f"undrift paper run {preset.name} --scale {scaled.scale}"
    sections.append(("commands", ("pre", "\n".join([command, "", *repeated[:20]])), "Commands to repeat this"))
    page.write(folder / "index.html", f"{preset.name}: {preset.title}", sections)
    return folder / "index.html"


def write_figures(preset: papers.Preset, rows: Sequence[Row], folder: Path) -> Path | None:
    """The preset's figures alone, as figures.html and, with chromium, figures.png; None where it has none."""
    drawn = figures.drawn(preset, rows)
    if not drawn:
        return None
    sections = [(f"figure-{number}", fig) for number, (_, fig) in enumerate(drawn)]
    place = folder / "figures.html"
    page.write(place, f"{preset.name}: {preset.title}", sections)
    image = folder / "figures.png"
    return image if picture(place, image, (900, 140 + 470 * len(sections))) else place


def opening(preset: papers.Preset, rows: Sequence[Row], reductions: Sequence[str]) -> list[page.Section]:
    """The sections that both pages start with: about, reductions, tables, claims."""
    lines = [preset.source, *([preset.about] if preset.about else [])]
    sections: list[page.Section] = [("about", "\n".join(lines))]
    if reductions:
        smaller = ["The printed numbers are not comparable: these runs are smaller than the paper's.", *reductions]
        sections.append(("reductions", "\n".join(smaller), "Less than the paper"))
    for number, (name, table) in enumerate(paper_table.tables(preset, rows)):
        sections.append((f"table-{number}", table, f"{name}: ours / printed"))
    for number, (title, fig) in enumerate(figures.drawn(preset, rows)):
        sections.append((f"figure-{number}", fig, title))
    if preset.claims:
        sections.append(("claims", claims.claim_table(claims.outcomes(preset, rows)), "Claims"))
    return sections


# ---- results files ---------------------------------------------------------------------------------------------------


def read_results(file: Path) -> tuple[papers.Preset, list[Row]]:
    """The preset of a results file, and its best row per cell and seed, in the order of the preset."""
    if not file.exists():
        raise BadRequest(f"there is no file {file}; `undrift paper run NAME --results {file}` writes it")
    rows = [
        check(ResultLine, row, f"{file}, line {number}", more=True) for number, row in enumerate(read_lines(file), 1)
    ]
    if not rows:
        raise BadRequest(f"{file} holds no results; `undrift paper run NAME --results {file}` writes them")
    preset = papers.load(rows[0]["preset"])
    defaults = {"curve": [], "reductions": [], **dict.fromkeys(("undrift", "torch", "machine", "date"), "unknown")}
    rows = [{**defaults, **row} for row in rows]
    rows = [{**row, "values": recomputed(preset, row)} for row in rows]
    for row in rows:
        papers.by_name("row", preset.rows, [row["row"]])
        papers.by_name("column", preset.columns, [row["column"]])
    place = {row.name: number for number, row in enumerate(preset.rows)}
    return preset, sorted(paper_table.newest(rows), key=lambda row: place.get(row["row"], len(place)))


def recomputed(preset: papers.Preset, row: Row) -> dict[str, list[float]]:
    """The preset's values of a results line: from its curve where that is enough, so that a changed window needs no new
    run, otherwise as they were written."""
    kept = row.get("values") or {}
    values = {v.name: of_curve(row["curve"], v) if v.is_curve else kept.get(v.name) for v in preset.values}
    return {name: pair for name, pair in values.items() if pair is not None}


def results_markdown(file: Path) -> str:
    """The tables and claims of a results file."""
    preset, rows = read_results(file)
    less = list(dict.fromkeys(sentence for row in rows for sentence in row["reductions"]))
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
    """Add the rounds to each number: a table can have results of several lengths."""
    length = {(row["row"], row["column"]): row["rounds"] for row in rows}
    head, *lines = table
    longer = [head]
    for name, *cells in lines:
        pairs = zip(cells, head[1:])
        longer.append([name, *(f"{text} ({length[name, c]})" if (name, c) in length else "—" for text, c in pairs)])
    return longer


def write_results_page(file: Path, path: Path) -> None:
    preset, rows = read_results(file)
    sections = opening(preset, rows, list(dict.fromkeys(sentence for row in rows for sentence in row["reductions"])))
    for column in dict.fromkeys(row["column"] for row in rows):
        fig = curves([row for row in rows if row["column"] == column])
        sections.append((f"curves-{papers.safe(column)}", fig, column))
    page.write(path, f"{preset.name}: {preset.title}", sections)


def curves(rows: Sequence[Row]) -> Any:
    """Stage G over the rounds, one line per result."""
    several = len({row["seed"] for row in rows}) > 1
    fig = plots.figure(plots.STAGES["G", "global"], "round", "accuracy")
    for row in rows:
        name = f"{row['row']}, seed {row['seed']}" if several else row["row"]
        fig.add_scatter(x=list(range(1, len(row["curve"]) + 1)), y=row["curve"], mode="lines", name=name)
    return fig
