"""A preset at a scale: which runs it has, and what is less than in the paper.

`paper` has the settings of the paper. `mid` is the same grid on real pictures, with a small network of the paper's kind and a
minute or more per cell. `quick` is the same grid in minutes. Every reduction is printed. With fewer rounds R the schedules keep T/R, T₁/R
and γ^R.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from undrift.core import text
from undrift.core.errors import BadRequest, unknown
from undrift.experiment.options import FIELDS
from undrift.papers.papers import Column, Preset, TableRow, by_name
from undrift.papers.values import Value
from undrift.study.comparison import safe
from undrift.study.tasks import Task

SCALES = ("quick", "mid", "paper")
SCHEDULES = ("T", "T1", "warmup")  # parameters of methods that count rounds


@dataclass(frozen=True)
class Scaled:
    """A preset at a scale: the runs, and every reduction against the paper."""

    preset: Preset
    scale: str
    options: dict[str, Any]
    rows: tuple[TableRow, ...]
    columns: tuple[Column, ...]
    seeds: tuple[tuple[int, int], ...]
    reductions: tuple[str, ...]  # with any of them the printed numbers are not comparable
    until_clear: tuple[int, int] | None = None  # seeds are added from the first number up to the second

    @property
    def left_out(self) -> tuple[str, ...]:
        """Rows and columns that are not run, one sentence each. The others stay comparable."""
        sentences = []
        for what, included, every in (
            ("rows", self.rows, self.preset.rows),
            ("columns", self.columns, self.preset.columns),
        ):
            missing = [item.name for item in every if item.name not in {other.name for other in included}]
            sentences += [f"{what} left out: {', '.join(missing)}"] if missing else []
        return tuple(sentences)

    def settings(self, column: Column, row: TableRow | None = None, seed: int = 0) -> dict[str, Any]:
        """The options of a run of a cell; without a row those of its federation. `seed`: its place among the seeds."""
        own, of_data = self.seeds[seed]
        options = row.options if row else {}
        return {**self.options, **column.options, **options, "seed": own, "data_seed": of_data}

    def tasks(self) -> list[Task]:
        """One task per seed, column and row; none where nothing is trained."""
        tasks = list[Task]()
        if not self.preset.trains:
            return tasks
        for place, column, row in itertools.product(range(len(self.seeds)), self.columns, self.rows):
            settings = self.settings(column, row, place)
            seed = settings["seed"]
            cell = {"row": row.name, "column": column.name, "seed": seed}
            name = f"{safe(row.name)}-{safe(column.name)}-seed{seed}"
            about = {"preset": self.preset.runs_name, "scale": self.scale, **cell}
            tasks.append(Task(name, row.method, settings, about))
        return tasks


def scaled(
    preset: Preset,
    scale: str,
    *,
    rounds: int | None = None,
    data: str | None = None,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    seeds: int | None = None,
    first: int = 0,
) -> Scaled:
    """The preset at a scale, with the reductions that were asked for. `first`: the first seed, if earlier ones were run."""
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    less = reduced(preset, scale)
    changed = {**less.get("options", {}), **({"rounds": rounds} if rounds else {}), **({"data": data} if data else {})}
    options = {
        key: value for key, value in {**preset.options, **changed}.items() if value != ""
    }  # "" removes an option
    if scale == "paper" and str(options["data"]).endswith("-subset"):
        raise BadRequest(
            f"{options['data']} is a part of the data set, and --scale paper needs all of it; leave out --data"
        )
    run_rows = by_name("row", preset.rows, rows or less.get("rows", ()))
    run_columns = by_name("column", preset.columns, columns or less.get("columns", ()))
    if scale != "paper":
        run_rows = tuple(dataclasses.replace(row, method=row.method_at(scale)) for row in run_rows)
        own = less.get("of", {})  # a column's options at this scale
        run_columns = tuple(Column(c.name, {**c.options, **own.get(c.name, {})}) for c in run_columns)
    share = options["rounds"] / preset.options["rounds"]
    if share != 1:
        if "lr_decay" not in changed and "lr_decay" in options:
            options["lr_decay"] = options["lr_decay"] ** (1 / share)
        run_rows = tuple(shortened(row, share) for row in run_rows)
    usual = max(preset.seeds, preset.repeat) if scale == "paper" else less.get("repeat", less.get("seeds", 1))
    count = seeds or usual
    one_federation = preset.repeat > 1
    pairs = tuple((seed, 0 if one_federation else seed) for seed in range(first, first + count))
    smaller = reductions(preset, options, run_rows, run_columns, first + count)
    return Scaled(preset, scale, options, run_rows, run_columns, pairs, smaller)


def reduced(preset: Preset, scale: str) -> Mapping[str, Any]:
    """What a preset says about a scale; nothing for the paper's."""
    if scale == "paper":
        return {}
    if not getattr(preset, scale):
        others = [other for other in SCALES if other == "paper" or getattr(preset, other)]
        raise BadRequest(f"{preset.name} has no {scale} scale; use --scale {' or --scale '.join(others)}")
    return dict(getattr(preset, scale))


def shortened(row: TableRow, share: float) -> TableRow:
    """The same row in fewer rounds: parameters in rounds keep their share of the run, decays end at the same value."""
    terms, has_schedule = [], False
    for mark, call in text.parse_method(row.method):
        rounds = {
            key: max(1, round(value * share)) for key, value in call.options.items() if key in SCHEDULES and value
        }
        has_schedule = has_schedule or bool(rounds)
        terms.append(mark + text.spell(dataclasses.replace(call, options={**call.options, **rounds})))
    method = "".join(terms).removeprefix("+") if has_schedule else row.method
    options = dict(row.options)
    if "lr_decay" in options:
        options["lr_decay"] = options["lr_decay"] ** (1 / share)
    return dataclasses.replace(row, method=method, options=options)


def reductions(
    preset: Preset, options: Mapping[str, Any], rows: Sequence[TableRow], columns: Sequence[Column], seeds: int
) -> tuple[str, ...]:
    """Everything that differs from the paper, one sentence each."""
    sentences = []
    for key in FIELDS:
        ours, theirs = options.get(key), preset.options.get(key)
        if ours != theirs and key != "lr_decay":
            chosen = f"no {key}" if ours is None else f"{key} {ours}"
            sentences.append(f"{chosen} instead of {FIELDS[key].default if theirs is None else theirs}")
    if options["rounds"] != preset.options["rounds"] and options.get("lr_decay", 1.0) != 1.0:
        sentences.append(
            f"lr_decay {options['lr_decay']:.4g}, so that the rate ends where it does in {preset.options['rounds']} rounds"
        )
    methods = {row.name: row.method for row in preset.rows}
    sentences += [
        f"{row.name}: {row.method} instead of {methods[row.name]}" for row in rows if row.method != methods[row.name]
    ]
    of_paper = {column.name: column.options for column in preset.columns}
    for column in columns:
        before = of_paper[column.name]
        changed = [
            f"{key} {value} instead of {before.get(key)}"
            for key, value in column.options.items()
            if value != before.get(key)
        ]
        sentences += [f"{column.name}: {', '.join(changed)}"] if changed else []
    sentences += [sentence for value in preset.values for sentence in window_reductions(value, options)]
    if seeds < max(preset.seeds, preset.repeat):
        sentences.append(f"{seeds} seed{'s' * (seeds > 1)} instead of {max(preset.seeds, preset.repeat)}")
    return tuple(sentences)


def window_reductions(value: Value, options: Mapping[str, Any]) -> list[str]:
    """What is averaged, where it is not what the paper averages."""
    sentences = [f"{value.name}: {value.paper}"] if value.paper else []
    every = 1 if value.stage in ("G", "train") else options.get("evaluate_every", 1)
    evaluated = -(-options["rounds"] // every)
    if evaluated == 1:
        sentences.append(f"{value.name}: a single evaluated round")
    if wide := value.widened(evaluated):
        start, end = value.span
        sentences.append(
            f"{value.name}: {wide} of {evaluated} evaluated rounds instead of {100 * (end - start):g} % of them"
        )
    return sentences
