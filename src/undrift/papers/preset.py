"""A preset: a table or figure of a paper as a TOML file. docs/papers.md describes the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Len, MinLen

from undrift.core.errors import BadRequest, unknown
from undrift.core.files import read_toml
from undrift.core.schema import Name, Positive, Seeds, check, setting
from undrift.experiment.options import Options

PRESETS = Path(__file__).with_name("presets")
LOST = "lost"  # in a preset: a printed number that is not readable any more
Pair = Annotated[list[Name], Len(2, 2)]


@dataclass(frozen=True)
class TableRow:
    """A row of the table: a method, and the options of its own."""

    name: Name = setting(..., "name of the row")
    method: Name = setting(..., "the method")
    options: dict[str, Any] = setting({}, "options of its own")
    quick: Name | None = setting(None, "its method at quick scale, where that differs")


@dataclass(frozen=True)
class Column:
    """A column of the table: an environment, as options."""

    name: Name = setting(..., "name of the column")
    options: dict[str, Any] = setting({}, "options of its runs")


@dataclass(frozen=True)
class Value:
    """A number of a run: a metric of a stage, as the mean (or std) over the last `window` evaluated rounds
    (0: all; below 1: that share of them)."""

    name: Name = setting("G", "name of the number")
    stage: Literal["G", "L1", "L2"] = setting("G", "the stage")
    data: Name = setting("global", "which data, as in run.sqlite")
    metric: Name = setting("accuracy", "the metric, as in run.sqlite")
    window: Annotated[float, Ge(0)] = setting(1, "evaluated rounds at the end; 0: all, below 1: that share of them")
    take: Literal["mean", "std"] = setting("mean", "over the window")
    factor: Positive = setting(100.0, "the paper's unit")


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper (or of a control) about two rows. Its outcome is true, false or open."""

    sentence: str
    kind: str  # above, below, near
    rows: tuple[str, str]
    columns: tuple[str, ...] = ()  # empty: all
    value: str | None = None  # by default the first
    share: float = 1.0  # of the columns in which it must hold
    within: float = 1.0  # what counts as equal, in the units of the value


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
class ClaimItem:
    """An entry of `claims`. One of above, below and near names two rows. (`in` of the file is `columns` here.)"""

    sentence: Name = setting(..., "what the paper says")
    above: Pair | None = setting(None, "the first row is above the second")
    below: Pair | None = setting(None, "the first row is below the second")
    near: Pair | None = setting(None, "the two rows are equal")
    columns: list[Name] = setting([], "in these columns [all]")
    value: Name | None = setting(None, "which value [the first]")
    share: Annotated[float, Gt(0), Le(1)] = setting(1.0, "of the columns in which it must hold")
    within: Annotated[float, Ge(0)] = setting(1.0, "what counts as equal, in the units of the value")


@dataclass(frozen=True)
class Quick:
    """The table `quick`: the same grid in minutes."""

    options: dict[str, Any] = setting({}, "options that replace the paper's; an empty text removes one")
    rows: list[Name] = setting([], "only these rows")
    columns: list[Name] = setting([], "only these columns")
    of: dict[str, dict[str, Any]] = setting({}, "options by column")
    seeds: Seeds = setting(1, "number of seeds")
    repeat: Seeds = setting(1, "number of seeds on one federation")
    minutes: Positive | None = setting(None, "measured on two cores")


@dataclass(frozen=True)
class PresetFile:
    """The keys of a preset."""

    title: Name = setting(..., "what the table shows")
    source: Name = setting(..., "the paper, and where in it")
    options: dict[str, Any] = setting(..., "the options of all runs")
    rows: Annotated[list[dict[str, Any]], MinLen(1)] = setting(..., "the methods: name, method, options, quick")
    quick: dict[str, Any] = setting(..., "the scale of minutes")
    about: str = setting("", "what a reader should know")
    columns: Annotated[list[dict[str, Any]], MinLen(1)] | None = setting(None, "the environments: name, options")
    values: Annotated[list[dict[str, Any]], MinLen(1)] | None = setting(None, "the numbers to take from each run")
    published: dict[str, list[Any] | dict[str, Any]] = setting({}, "the printed numbers, by row and column")
    claims: list[dict[str, Any]] = setting([], "what the paper says about two rows")
    seeds: Seeds = setting(1, "number of seeds, each with its federation")
    repeat: Seeds = setting(1, "number of seeds on one federation")


def names() -> list[str]:
    """All presets, as PAPER/TABLE."""
    return sorted(
        f"{folder.name}/{file.name.removesuffix('.toml')}"
        for folder in PRESETS.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    )


def load(name: str) -> Preset:
    if name not in names():
        raise unknown("paper", name, names())
    paper, _, table = name.partition("/")
    return parse(name, read_toml(PRESETS / paper / f"{table}.toml"))


def parse(name: str, given: Mapping[str, Any]) -> Preset:
    """The preset of a TOML table."""
    table = check(PresetFile, given, name)
    columns = tuple(
        Column(**check(Column, item, f"{name}: columns")) for item in table.get("columns") or [{"name": "all"}]
    )
    preset = Preset(
        name=name,
        title=table["title"],
        source=table["source"],
        about=table.get("about", "").strip(),
        options=table["options"],
        rows=tuple(TableRow(**check(TableRow, item, f"{name}: rows")) for item in table["rows"]),
        columns=columns,
        values=tuple(Value(**check(Value, item, f"{name}: values")) for item in table.get("values") or [{}]),
        published=by_column(table.get("published", {}), columns),
        claims=tuple(parse_claim(name, item) for item in table.get("claims", ())),
        quick=check(Quick, table["quick"], f"{name}: quick"),
        seeds=table.get("seeds", 1),
        repeat=table.get("repeat", 1),
    )
    check_names(preset)
    return preset


def parse_claim(name: str, given: Mapping[str, Any]) -> Claim:
    item = check(ClaimItem, {"columns" if key == "in" else key: given[key] for key in given}, f"{name}: claims")
    kinds = [kind for kind in ("above", "below", "near") if item.get(kind) is not None]
    if len(kinds) != 1:
        raise BadRequest(f"{name}: the claim {item['sentence']!r} needs exactly one of above, below and near")
    kind = kinds[0]
    return Claim(
        sentence=item["sentence"],
        kind=kind,
        rows=tuple(item[kind]),
        columns=tuple(item.get("columns", ())),
        value=item.get("value"),
        share=item.get("share", 1.0),
        within=item.get("within", 1.0),
    )


def check_names(preset: Preset) -> None:
    """Every row, column and option that the preset names must exist. A test reads all presets."""
    rows, columns = {row.name for row in preset.rows}, {column.name for column in preset.columns}
    published = preset.published
    used_rows = (
        {row for claim in preset.claims for row in claim.rows} | set(published) | set(preset.quick.get("rows", ()))
    )
    used_columns = {c for claim in preset.claims for c in claim.columns} | {
        c for row in published.values() for c in row
    }
    for wrong in sorted((used_rows - rows) | (used_columns - columns)):
        raise BadRequest(
            f"{preset.name}: {wrong!r} is neither a row nor a column; known: {', '.join(sorted(rows | columns))}"
        )
    of_quick = {name: value for name, value in preset.quick.get("options", {}).items() if value != ""}
    for options in (
        preset.options,
        of_quick,
        *(row.options for row in preset.rows),
        *(column.options for column in preset.columns),
    ):
        check(Options, options, f"{preset.name}: options")
    for key in ("data", "rounds"):
        if key not in preset.options:
            raise BadRequest(f"{preset.name}: options lack {key}; every preset names it")


def by_column(published: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, dict[str, Any]]:
    """Printed numbers by row and column. A row is a list in the order of the columns, or a table by column."""
    return {
        row: dict(zip([column.name for column in columns], numbers)) if isinstance(numbers, list) else dict(numbers)
        for row, numbers in published.items()
    }
