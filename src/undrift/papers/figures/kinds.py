"""The kinds of figures, and how a preset writes them (docs/papers.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

Place = float | str


@dataclass(frozen=True)
class Names:
    """The rows, columns and values that a figure names."""

    rows: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Point:
    """Where a cell stands on the x axis. Without a column it is the first of the preset."""

    x: Place
    row: str
    column: str | None = None


@dataclass(frozen=True)
class Line:
    """Points, or a level: a control that has no such parameter, drawn across the figure."""

    name: str
    points: tuple[Point, ...] = ()
    level: str | None = None  # a row


@dataclass(frozen=True)
class OverParameter:
    """A number of the runs over a parameter, with its interval over seeds."""

    title: str
    x: str
    lines: tuple[Line, ...]
    value: str | None = None  # by default the first of the preset

    @property
    def names(self) -> Names:
        points = [point for line in self.lines for point in line.points]
        rows = {line.level for line in self.lines if line.level} | {point.row for point in points}
        columns = {point.column for point in points if point.column}
        return Names(frozenset(rows), frozenset(columns), frozenset({self.value} if self.value else ()))


@dataclass(frozen=True)
class Source:
    """What is drawn of a run: a metric of a stage, the share of clients below a target, or what a part noted.

    `over`: the note with the x axis, such as δ of the bounds, or its numbers; then what is drawn is of the last round, the mean
    over clients."""

    stage: str = "G"
    data: str = "global"
    metric: str = "accuracy"
    below: float | None = None
    note: str = ""  # AXIS.NAME, such as personalize.gamma
    over: str | tuple[float, ...] = ""
    label: str = ""  # among several in one figure

    @property
    def key(self) -> str:
        """Its name in a results file."""
        if self.note:
            return (
                f"{self.note} over {self.over if isinstance(self.over, str) else 'a grid'}" if self.over else self.note
            )
        return f"{self.stage}/{self.data}/{self.metric}" + ("" if self.below is None else f" below {self.below:g}")


@dataclass(frozen=True)
class Curves:
    """Curves over rounds: mean and standard deviation over seeds. A line per row and a panel per column, or the other way round.

    `dashed` and `dotted` are further rows; the first of each has the colour of the first of `rows`, and so on."""

    title: str
    sources: tuple[Source, ...]
    y: str
    x: str = "round"
    rows: tuple[str, ...] = ()  # by default all
    dashed: tuple[str, ...] = ()
    dotted: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()  # by default all
    panels: str = "columns"  # or rows

    @property
    def names(self) -> Names:
        return Names(frozenset((*self.rows, *self.dashed, *self.dotted)), frozenset(self.columns))


@dataclass(frozen=True)
class Pictures:
    """A picture per cell of the first seed: points of two lists that a part noted, or the loss around the final model."""

    title: str
    source: Source
    x: str = ""
    y: str = ""
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def names(self) -> Names:
        return Names(frozenset(self.rows), frozenset(self.columns))


@dataclass(frozen=True)
class Partition:
    """Which client has how many samples of which class, or how many in all. Nothing is trained."""

    title: str
    show: str = "classes"  # or sizes
    columns: tuple[str, ...] = ()

    @property
    def names(self) -> Names:
        return Names(columns=frozenset(self.columns))


@dataclass(frozen=True)
class Schedule:
    """A number that a part computes from the round and the plan alone, one line per row. Nothing is trained."""

    title: str
    of: str  # AXIS.METHOD, such as sampling.level
    y: str
    rows: tuple[str, ...] = ()

    @property
    def names(self) -> Names:
        return Names(frozenset(self.rows))


Figure = OverParameter | Curves | Pictures | Partition | Schedule
UNTRAINED = (Partition, Schedule)


def parse_figure(item: Mapping[str, Any]) -> Figure:
    """The figure of a TOML table. Without a kind it is a value over a parameter."""
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in item.items() if key != "kind"}
    kind = item.get("kind", "value")
    if kind not in READERS:
        raise ValueError(f"the figure {item['title']!r} has the kind {kind!r}; it must be one of {', '.join(READERS)}")
    return READERS[kind](given)


def read_value(item: Mapping[str, Any]) -> Figure:
    lines = [
        Line(line["name"], tuple(Point(*point) for point in line.get("points", ())), line.get("level"))
        for line in item["lines"]
    ]
    for line in lines:
        if bool(line.points) == bool(line.level):
            raise ValueError(f"the line {line.name!r} of {item['title']!r} needs points or a level")
    return OverParameter(item["title"], item["x"], tuple(lines), item.get("value"))


def read_curves(item: Mapping[str, Any]) -> Figure:
    own, rest = split(item)
    source = Source(**own)
    below = f"share of clients below {source.below:g}" if source.below is not None else source.metric
    return arranged(Curves(sources=(source,), **{"y": below, **rest}))


def read_trace(item: Mapping[str, Any]) -> Figure:
    notes, over = item["notes"], item.get("over", "")
    rest = {key: value for key, value in item.items() if key not in ("notes", "over", "labels")}
    sources = tuple(
        Source(note=n, over=over, label=label) for n, label in zip(notes, item.get("labels", notes), strict=True)
    )
    labels = {"y": ", ".join(notes), **({"x": over} if isinstance(over, str) and over else {})}
    return arranged(Curves(sources=sources, **{**labels, **rest}))


def arranged(figure: Curves) -> Curves:
    if figure.panels not in ("columns", "rows"):
        raise ValueError(f"the panels of {figure.title!r} are columns or rows, not {figure.panels!r}")
    return figure


def read_pictures(item: Mapping[str, Any]) -> Figure:
    own, rest = split(item)
    return Pictures(source=Source(**own), **rest)


def split(item: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of a source, and the others."""
    names = {field.name for field in fields(Source)}
    return {k: v for k, v in item.items() if k in names}, {k: v for k, v in item.items() if k not in names}


READERS = {
    "value": read_value, "curves": read_curves, "trace": read_trace, "pictures": read_pictures,
    "partition": lambda item: Partition(**item), "schedule": lambda item: Schedule(**item),
}  # fmt: skip


def names_in(figures: Sequence[Figure]) -> tuple[set[str], set[str], set[str]]:
    """All rows, columns and values that figures name."""
    named = [figure.names for figure in figures]
    return (
        {row for names in named for row in names.rows},
        {column for names in named for column in names.columns},
        {value for names in named for value in names.values},
    )
