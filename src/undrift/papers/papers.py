"""The papers' experiments as presets: one small TOML file per table or figure, the printed numbers inside.

A preset is a grid of runs: rows (methods) × columns (environments) × seeds, and the numbers that are read off a run. The
scale `paper` is what the paper says; `quick` is the same shape in minutes, with every reduction printed. A reduced number
of rounds R keeps what schedules mean: T/R, T₁/R and γ^R (docs/papers.md has the format).
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
from undrift.study.comparison import safe
from undrift.study.tasks import Task

SCALES = ("quick", "paper")
SCHEDULES = ("T", "T1", "warmup")  # parameters of methods that count rounds
LOST = "lost"  # a printed number that did not survive


@dataclass(frozen=True)
class Line:
    """A row of the table: a method, and the options it does not share."""

    name: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    quick: str | None = None  # its method at quick scale, where that differs


@dataclass(frozen=True)
class Column:
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Value:
    """A number read off a run: a metric of a stage, the mean (or std) over the last `window` judged rounds
    (0: all; below 1: that share of them)."""

    name: str = "G"
    stage: str = "G"
    data: str = "global"
    metric: str = "accuracy"
    window: float = 1
    take: str = "mean"
    factor: float = 100.0


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper (or of a control) that comes out true, false or open."""

    sentence: str
    kind: str  # above, below, near
    rows: tuple[str, str]
    columns: tuple[str, ...] = ()  # empty: all
    value: str | None = None  # by default the first
    share: float = 1.0  # of the columns in which it must hold
    within: float = 1.0  # what counts as equal, in the units of the value


@dataclass(frozen=True)
class Preset:
    name: str
    title: str
    source: str
    about: str
    options: Mapping[str, Any]
    lines: tuple[Line, ...]
    columns: tuple[Column, ...]
    values: tuple[Value, ...]
    published: Mapping[str, Mapping[str, Any]]  # row -> column -> one printed text per value
    claims: tuple[Claim, ...]
    quick: Mapping[str, Any]
    seeds: int = 1
    repeat: int = 1

    @property
    def minutes(self) -> float | None:
        """What the quick scale takes on two cores, measured."""
        return self.quick.get("minutes")

    def printed(self, row: str, column: str, value: int) -> str:
        """As the paper prints it; `not printed` where the number is lost, — where the row or column is ours."""
        found = self.published.get(row, {}).get(column)
        if found is None:
            return "—"
        one = found[value] if isinstance(found, list) else found if value == 0 else None
        return "—" if one in (None, "") else "not printed" if one == LOST else str(one)


@dataclass(frozen=True)
class Scaled:
    """A preset at a scale: what is run, and what is less than the paper."""

    preset: Preset
    scale: str
    options: dict[str, Any]
    lines: tuple[Line, ...]
    columns: tuple[Column, ...]
    seeds: tuple[tuple[int, int], ...]
    reductions: tuple[str, ...]  # while there are any, the printed numbers are not comparable

    @property
    def left_out(self) -> tuple[str, ...]:
        """Rows and columns that are not run, one sentence each; those that are do not suffer from it."""
        said = []
        for what, mine, every in (
            ("rows", self.lines, self.preset.lines),
            ("columns", self.columns, self.preset.columns),
        ):
            gone = [one.name for one in every if one.name not in {m.name for m in mine}]
            said += [f"{what} left out: {', '.join(gone)}"] if gone else []
        return tuple(said)

    def tasks(self, seconds: Mapping[tuple[str, str], float] | None = None) -> list[Task]:
        found = []
        for (seed, data_seed), column, line in itertools.product(self.seeds, self.columns, self.lines):
            cell = {"row": line.name, "column": column.name, "seed": seed}
            name = f"{safe(line.name)}-{safe(column.name)}-seed{seed}"
            settings = {**self.options, **column.options, **line.options, "seed": seed, "data_seed": data_seed}
            expected = (seconds or {}).get((line.name, column.name), 0.0)
            about = {"preset": self.preset.name, "scale": self.scale, **cell}
            found.append(Task(name, line.method, settings, about, expected))
        return found


def names() -> list[str]:
    home = files("undrift.papers") / "presets"
    found = [f"{folder.name}/{file.name.removesuffix('.toml')}" for folder in home.iterdir() if folder.is_dir()
             for file in folder.iterdir() if file.name.endswith(".toml")]  # fmt: skip
    return sorted(found)


def load(name: str) -> Preset:
    if name not in names():
        raise unknown("paper", name, names())
    paper, _, table = name.partition("/")
    return read(name, tomllib.loads((files("undrift.papers") / "presets" / paper / f"{table}.toml").read_text()))


def read(name: str, table: Mapping[str, Any]) -> Preset:
    """A preset out of its file; a name in it that leads nowhere is an error of ours, found by a test."""
    lines = tuple(Line(**one) for one in table["rows"])
    columns = tuple(Column(**one) for one in table.get("columns", [{"name": "all"}]))
    claims = tuple(
        Claim(one["sentence"], kind, tuple(one[kind]), tuple(one.get("in", ())), one.get("value"), one.get("share", 1.0),
              one.get("within", 1.0))
        for one in table.get("claims", ()) for kind in ("above", "below", "near") if kind in one
    )  # fmt: skip
    values = tuple(Value(**one) for one in table.get("values", [{}]))
    preset = Preset(
        name, table["title"], table["source"], table.get("about", "").strip(), table["options"], lines, columns, values,
        by_column(table.get("published", {}), columns), claims, table["quick"], table.get("seeds", 1), table.get("repeat", 1),
    )  # fmt: skip
    rows, known = {line.name for line in lines}, {column.name for column in columns}
    used = {row for claim in claims for row in claim.rows} | set(preset.published) | set(preset.quick.get("rows", ()))
    places = {c for claim in claims for c in claim.columns} | {c for p in preset.published.values() for c in p}
    for wrong in (used - rows) | (places - known) | (set(table["options"]) - set(FIELDS)):
        raise ValueError(f"{name}: {wrong!r} is neither a row nor a column nor an option")
    return preset


def by_column(published: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, dict[str, Any]]:
    """A row's numbers are written as a list in the order of the columns, or by column."""
    return {
        row: dict(zip([column.name for column in columns], numbers)) if isinstance(numbers, list) else dict(numbers)
        for row, numbers in published.items()
    }


def scaled(
    preset: Preset, scale: str, *, rounds: int | None = None, data: str | None = None, rows: Sequence[str] = (),
    columns: Sequence[str] = (), seeds: int | None = None, first: int = 0,
) -> Scaled:  # fmt: skip
    """The preset at a scale, with the reductions that were asked for. `first` seed: others may have been run before."""
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    quick: Mapping[str, Any] = preset.quick if scale == "quick" else {}
    more = {**quick.get("options", {}), **({"rounds": rounds} if rounds else {}), **({"data": data} if data else {})}
    options = {
        key: value for key, value in {**preset.options, **more}.items() if value != ""
    }  # "" takes an option away
    if scale == "paper" and str(options["data"]).endswith("-subset"):
        raise BadRequest(f"{options['data']} is a part of the data set; --scale paper needs all of it")
    lines = chosen("row", preset.lines, rows or quick.get("rows", ()))
    places = chosen("column", preset.columns, columns or quick.get("columns", ()))
    if scale == "quick":
        lines = tuple(dataclasses.replace(line, method=line.quick or line.method) for line in lines)
        own = quick.get("of", {})  # a column's options at quick scale
        places = tuple(Column(c.name, {**c.options, **own.get(c.name, {})}) for c in places)
    share = options["rounds"] / preset.options["rounds"]
    if share != 1:
        if "lr_decay" not in more and "lr_decay" in options:
            options["lr_decay"] = options["lr_decay"] ** (1 / share)
        lines = tuple(shortened(line, share) for line in lines)
    count = (
        seeds or quick.get("repeat", quick.get("seeds", 1))
        if scale == "quick"
        else seeds or max(preset.seeds, preset.repeat)
    )
    fixed = preset.repeat > 1
    pairs = tuple((seed, 0 if fixed else seed) for seed in range(first, first + count))
    return Scaled(
        preset, scale, options, lines, places, pairs, reductions(preset, options, lines, places, first + count)
    )


def chosen(what: str, known: Sequence[Any], wanted: Sequence[str]) -> tuple[Any, ...]:
    by_name = {one.name: one for one in known}
    for name in wanted:
        if name not in by_name:
            raise unknown(what, name, by_name)
    return tuple(one for one in known if not wanted or one.name in wanted)


def shortened(line: Line, share: float) -> Line:
    """The same line in fewer rounds: what counts rounds keeps its share of the run, what decays ends where it did."""
    terms, later = [], False
    for mark, call in text.parse_method(line.method):
        rounds = {
            key: max(1, round(value * share)) for key, value in call.options.items() if key in SCHEDULES and value
        }
        later = later or bool(rounds)
        terms.append(mark + text.spell(dataclasses.replace(call, options={**call.options, **rounds})))
    method = "".join(terms).removeprefix("+") if later else line.method
    options = dict(line.options)
    if "lr_decay" in options:
        options["lr_decay"] = options["lr_decay"] ** (1 / share)
    return dataclasses.replace(line, method=method, options=options)


def reductions(
    preset: Preset, options: Mapping[str, Any], lines: Sequence[Line], columns: Sequence[Column], seeds: int
) -> tuple[str, ...]:
    """Everything that is not as in the paper, one sentence each."""
    said = []
    for key in FIELDS:
        ours, theirs = options.get(key), preset.options.get(key)
        if ours != theirs and key != "lr_decay":
            said.append(f"{key} {ours} instead of {FIELDS[key].default if theirs is None else theirs}")
    if options["rounds"] != preset.options["rounds"] and options.get("lr_decay", 1.0) != 1.0:
        said.append(
            f"lr_decay {options['lr_decay']:.4g}, so that the rate ends where it does in {preset.options['rounds']} rounds"
        )
    paper = {line.name: line for line in preset.lines}
    said += [f"{line.name}: {line.method} instead of {paper[line.name].method}" for line in lines
             if line.method != paper[line.name].method]  # fmt: skip
    there = {column.name: column for column in preset.columns}
    for column in columns:
        before = there[column.name].options
        changed = [
            f"{key} {value} instead of {before.get(key)}"
            for key, value in column.options.items()
            if value != before.get(key)
        ]
        said += [f"{column.name}: {', '.join(changed)}"] if changed else []
    if seeds < max(preset.seeds, preset.repeat):
        said.append(f"{seeds} seed{'s' * (seeds > 1)} instead of {max(preset.seeds, preset.repeat)}")
    return tuple(said)
