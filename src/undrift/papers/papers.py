"""The papers' experiments as presets: one small TOML file per table or figure, with the printed numbers.

A preset is a grid of runs: rows (methods) × columns (environments) × seeds, and the numbers to take from each run. Its scales
are in `scales.py`. A preset can share the runs of another one: a figure that draws a table's curves. docs/papers.md describes
the format.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from undrift.core.errors import unknown
from undrift.core.headline import ACCURACY, Headline
from undrift.data import catalogue
from undrift.experiment.options import FIELDS
from undrift.papers import figures as paper_figures
from undrift.papers.claims import Claim, names_in, parse_claim
from undrift.papers.figures import Figure, parse_figure
from undrift.papers.values import Value, value_of

LOST = "lost"  # in a preset: a printed number that is not readable any more


@dataclass(frozen=True)
class TableRow:
    """A row of the table: a method, and the options of its own."""

    name: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    quick: str | None = None  # its method at this scale, where that differs
    mid: str | None = None  # by default that of quick

    def method_at(self, scale: str) -> str:
        """The method at a scale, before its schedules are shortened."""
        own = {"quick": self.quick, "mid": self.mid or self.quick}
        return own.get(scale) or self.method


@dataclass(frozen=True)
class Column:
    """A column of the table: an environment, as options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Untestable:
    """A sentence of a paper that no run here can decide, and why."""

    sentence: str
    why: str


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
    mid: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)  # its minutes only: the settings are those of the preset
    untestable: tuple[Untestable, ...] = ()
    runs: str | None = None  # the preset whose runs it shows
    headline: Headline = ACCURACY  # what its values are, where they name no metric

    @property
    def runs_name(self) -> str:
        """The preset that its runs belong to, in results files and in paper.toml."""
        return self.runs or self.name

    def minutes(self, scale: str) -> float | None:
        """Time of a scale on two cores, as estimated in the preset (papers/minutes.py has what was measured)."""
        return getattr(self, scale).get("minutes")

    @property
    def trains(self) -> bool:
        """Whether anything is run: partitions and schedules are drawn without."""
        drawn_only = bool(self.figures) and all(isinstance(figure, paper_figures.UNTRAINED) for figure in self.figures)
        return bool(self.rows) and (bool(self.claims) or not drawn_only)

    def printed(self, row: str, column: str, value: int) -> str:
        """As the paper prints it; `not printed` for a lost number, — if the row or column is ours."""
        cell = self.published.get(row, {}).get(column)
        if cell is None:
            return "—"
        number = cell[value] if isinstance(cell, list) else cell if value == 0 else None
        return "—" if number in (None, "") else "not printed" if number == LOST else str(number)


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
    return parse(name, read(name))


def read(name: str) -> dict[str, Any]:
    """The TOML table of a preset."""
    if name not in names():
        raise unknown("paper", name, names())
    paper, _, table = name.partition("/")
    return tomllib.loads((files("undrift.papers") / "presets" / paper / f"{table}.toml").read_text())


def parse(name: str, table: Mapping[str, Any]) -> Preset:
    """The preset of a TOML table."""
    if "runs" in table:
        table = shared(read(table["runs"]), table)
    columns = tuple(Column(**item) for item in table.get("columns", [{"name": "all"}]))
    headline = headline_for(table["options"])
    preset = Preset(
        name=name,
        title=table["title"],
        source=table["source"],
        about=table.get("about", "").strip(),
        options=table["options"],
        rows=tuple(TableRow(**item) for item in table.get("rows", ())),
        columns=columns,
        values=tuple(value_of(item, headline) for item in table.get("values", [{}] if table.get("rows") else ())),
        published=by_column(table.get("published", {}), columns),
        claims=tuple(parse_claim(item) for item in table.get("claims", ())),
        quick=table["quick"],
        seeds=table.get("seeds", 1),
        repeat=table.get("repeat", 1),
        figures=tuple(parse_figure(item) for item in table.get("figures", ())),
        mid=table.get("mid", {}),
        paper=table.get("paper", {}),
        untestable=tuple(Untestable(**item) for item in table.get("untestable", ())),
        runs=table.get("runs"),
        headline=headline,
    )
    check_names(preset)
    return preset


def headline_for(options: Mapping[str, Any]) -> Headline:
    """The headline of runs with these options: of the task that they name, else of the task of the data set."""
    call = catalogue.named(str(options.get("data", "")))
    given = options.get("task") or (catalogue.about(call.name).task if call else "classification")
    if given == "classification":
        return ACCURACY  # without torch, which the live page does not load
    from undrift import tasks

    return tasks.read(given).shown


@cache
def showing(name: str) -> tuple[Preset, ...]:
    """The preset with these runs, and all that share them: a results file keeps what any of them shows."""
    others = [other for other in names() if read(other).get("runs") == name]
    return tuple(load(one) for one in (name, *others) if one in names())


def shared(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The table of a preset that shares the runs of another: its grid and settings, of `rows` and `columns` those that are
    named. Title, printed numbers, claims and figures are its own, and so are values where it has any."""
    kept = {
        key: value
        for key, value in base.items()
        if key not in ("about", "published", "claims", "figures", "untestable")
    }
    table = {**kept, **own}
    for what in ("rows", "columns"):
        if what in own:
            items = {item["name"]: item for item in base[what]}
            table[what] = [items[name] for name in own[what]]
    for scale in ("quick", "mid"):
        table[scale] = {**within(base.get(scale, {}), own), **own.get(scale, {})}
    return table


def within(scale: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What a scale of the other preset says about these rows and columns. Its minutes are those of all of them."""
    said = {key: value for key, value in scale.items() if key != "minutes"}
    for what in {"rows", "columns"} & said.keys() & own.keys():
        said[what] = [name for name in own[what] if name in said[what]] or own[what]
    if "of" in said and "columns" in own:
        said["of"] = {column: options for column, options in said["of"].items() if column in own["columns"]}
    return said


def check_names(preset: Preset) -> None:
    """Every row, column and option that the preset names must exist. A test reads all presets."""
    rows, columns, values = ({item.name for item in items} for items in (preset.rows, preset.columns, preset.values))
    claimed, drawn = names_in(preset.claims), paper_figures.names_in(preset.figures)
    claimed_rows, claimed_columns, claimed_values = (a | b for a, b in zip(claimed, drawn))
    scales = (preset.quick, preset.mid)
    wrong = (claimed_rows | set(preset.published) | {row for scale in scales for row in scale.get("rows", ())}) - rows
    wrong |= (claimed_columns | {c for row in preset.published.values() for c in row}) - columns
    wrong |= {column for scale in scales for key in ("columns", "of") for column in scale.get(key, ())} - columns
    wrong |= (claimed_values - values) | (set(preset.options) - set(FIELDS))
    for name in sorted(wrong):
        raise ValueError(f"{preset.name}: {name!r} is neither a row nor a column nor a value nor an option")


def by_column(published: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, dict[str, Any]]:
    """Printed numbers by row and column. A row is a list in the order of the columns, or a table by column."""
    return {
        row: dict(zip([column.name for column in columns], numbers)) if isinstance(numbers, list) else dict(numbers)
        for row, numbers in published.items()
    }


def by_name(what: str, known: Sequence[Any], wanted: Sequence[str]) -> tuple[Any, ...]:
    """The rows or columns with the wanted names, in the order of the preset; all if no name is given."""
    for name in wanted:
        if name not in [item.name for item in known]:
            raise unknown(what, name, [item.name for item in known])
    return tuple(item for item in known if not wanted or item.name in wanted)
