"""The papers' experiments as presets: one small TOML file per table or figure, with the printed numbers.

A preset is a grid of runs: rows (methods) × columns (environments) × seeds, and the numbers to take from each run. The
scale `paper` has the settings of the paper. The scale `quick` is the same grid in minutes, and every reduction is printed.
With fewer rounds R the schedules keep T/R, T₁/R and γ^R. docs/papers.md describes the format.
"""

from __future__ import annotations

import dataclasses
import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from undrift.core import text
from undrift.core.errors import BadRequest, unknown
from undrift.experiment.options import FIELDS
from undrift.papers import figures as paper_figures
from undrift.papers.claims import Claim, names_in, parse_claim
from undrift.papers.figures import Figure, parse_figure
from undrift.papers.values import Value
from undrift.study.comparison import safe
from undrift.study.tasks import Task

SCALES = ("quick", "paper")
SCHEDULES = ("T", "T1", "warmup")  # parameters of methods that count rounds
LOST = "lost"  # in a preset: a printed number that is not readable any more


@dataclass(frozen=True)
class TableRow:
    """A row of the table: a method, and the options of its own."""

    name: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    quick: str | None = None  # its method at quick scale, where that differs


@dataclass(frozen=True)
class Column:
    """A column of the table: an environment, as options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Preset:
    """A table or figure of a paper."""

    name: str
    title: str
    source: str
    about: str
    options: Mapping[str, Any]
    rows: tuple[TableRow, ...]
    columns: tuple[Column, ...]
    values: tuple[Value, ...]
    published: Mapping[str, Mapping[str, Any]]  # row -> column -> one printed text per value
    claims: tuple[Claim, ...]
    quick: Mapping[str, Any]
    seeds: int = 1
    repeat: int = 1
    figures: tuple[Figure, ...] = ()

    @property
    def minutes(self) -> float | None:
        """Measured time of the quick scale on two cores."""
        return self.quick.get("minutes")

    def printed(self, row: str, column: str, value: int) -> str:
        """As the paper prints it; `not printed` for a lost number, — if the row or column is ours."""
        cell = self.published.get(row, {}).get(column)
        if cell is None:
            return "—"
        number = cell[value] if isinstance(cell, list) else cell if value == 0 else None
        return "—" if number in (None, "") else "not printed" if number == LOST else str(number)


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

    def tasks(self, seconds: Mapping[tuple[str, str], float] | None = None) -> list[Task]:
        """One task per seed, column and row. `seconds`: the expected ones by (row, column)."""
        tasks = []
        for (seed, data_seed), column, row in itertools.product(self.seeds, self.columns, self.rows):
            cell = {"row": row.name, "column": column.name, "seed": seed}
            name = f"{safe(row.name)}-{safe(column.name)}-seed{seed}"
            settings = {**self.options, **column.options, **row.options, "seed": seed, "data_seed": data_seed}
            expected = (seconds or {}).get((row.name, column.name), 0.0)
            about = {"preset": self.preset.name, "scale": self.scale, **cell}
            tasks.append(Task(name, row.method, settings, about, expected))
        return tasks


def names() -> list[str]:
    """All presets, as PAPER/TABLE."""
    return sorted(
        f"{folder.name}/{file.name.removesuffix('.toml')}"
        for folder in (files("undrift.papers") / "presets").iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    )


def load(name: str) -> Preset:
    if name not in names():
        raise unknown("paper", name, names())
    paper, _, table = name.partition("/")
    return parse(name, tomllib.loads((files("undrift.papers") / "presets" / paper / f"{table}.toml").read_text()))


def parse(name: str, table: Mapping[str, Any]) -> Preset:
    """The preset of a TOML table."""
    columns = tuple(Column(**item) for item in table.get("columns", [{"name": "all"}]))
    preset = Preset(
        name=name,
        title=table["title"],
        source=table["source"],
        about=table.get("about", "").strip(),
        options=table["options"],
        rows=tuple(TableRow(**item) for item in table["rows"]),
        columns=columns,
        values=tuple(Value(**item) for item in table.get("values", [{}])),
        published=by_column(table.get("published", {}), columns),
        claims=tuple(parse_claim(item) for item in table.get("claims", ())),
        quick=table["quick"],
        seeds=table.get("seeds", 1),
        repeat=table.get("repeat", 1),
        figures=tuple(parse_figure(item) for item in table.get("figures", ())),
    )
    check_names(preset)
    return preset


def check_names(preset: Preset) -> None:
    """Every row, column and option that the preset names must exist. A test reads all presets."""
    rows, columns, values = ({item.name for item in items} for items in (preset.rows, preset.columns, preset.values))
    claimed, drawn = names_in(preset.claims), paper_figures.names_in(preset.figures)
    claimed_rows, claimed_columns, claimed_values = (a | b for a, b in zip(claimed, drawn))
    wrong = (claimed_rows | set(preset.published) | set(preset.quick.get("rows", ()))) - rows
    wrong |= (claimed_columns | {c for row in preset.published.values() for c in row}) - columns
    wrong |= (claimed_values - values) | (set(preset.options) - set(FIELDS))
    for name in sorted(wrong):
        raise ValueError(f"{preset.name}: {name!r} is neither a row nor a column nor a value nor an option")


def by_column(published: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, dict[str, Any]]:
    """Printed numbers by row and column. A row is a list in the order of the columns, or a table by column."""
    return {
        row: dict(zip([column.name for column in columns], numbers)) if isinstance(numbers, list) else dict(numbers)
        for row, numbers in published.items()
    }


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
    quick: Mapping[str, Any] = preset.quick if scale == "quick" else {}
    changed = {**quick.get("options", {}), **({"rounds": rounds} if rounds else {}), **({"data": data} if data else {})}
    options = {
        key: value for key, value in {**preset.options, **changed}.items() if value != ""
    }  # "" removes an option
    if scale == "paper" and str(options["data"]).endswith("-subset"):
        raise BadRequest(
            f"{options['data']} is a part of the data set, and --scale paper needs all of it; leave out --data"
        )
    run_rows = by_name("row", preset.rows, rows or quick.get("rows", ()))
    run_columns = by_name("column", preset.columns, columns or quick.get("columns", ()))
    if scale == "quick":
        run_rows = tuple(dataclasses.replace(row, method=row.quick or row.method) for row in run_rows)
        own = quick.get("of", {})  # a column's options at quick scale
        run_columns = tuple(Column(c.name, {**c.options, **own.get(c.name, {})}) for c in run_columns)
    share = options["rounds"] / preset.options["rounds"]
    if share != 1:
        if "lr_decay" not in changed and "lr_decay" in options:
            options["lr_decay"] = options["lr_decay"] ** (1 / share)
        run_rows = tuple(shortened(row, share) for row in run_rows)
    usual = quick.get("repeat", quick.get("seeds", 1)) if scale == "quick" else max(preset.seeds, preset.repeat)
    count = seeds or usual
    one_federation = preset.repeat > 1
    pairs = tuple((seed, 0 if one_federation else seed) for seed in range(first, first + count))
    smaller = reductions(preset, options, run_rows, run_columns, first + count)
    return Scaled(preset, scale, options, run_rows, run_columns, pairs, smaller)


def by_name(what: str, known: Sequence[Any], wanted: Sequence[str]) -> tuple[Any, ...]:
    """The rows or columns with the wanted names, in the order of the preset; all if no name is given."""
    for name in wanted:
        if name not in [item.name for item in known]:
            raise unknown(what, name, [item.name for item in known])
    return tuple(item for item in known if not wanted or item.name in wanted)


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
            sentences.append(f"{key} {ours} instead of {FIELDS[key].default if theirs is None else theirs}")
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
