"""Figures of a preset: a number of its runs over a parameter, one line per method, in the paper's arrangement.

A point is a parameter and the cell that has it. A line without points is a level: a control that has no such parameter, drawn
across the figure. Whiskers are the 95 % interval of the mean over seeds; one seed has none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from undrift.report import plots

if TYPE_CHECKING:
    from undrift.papers.papers import Preset

Row = dict[str, Any]
Place = float | str


@dataclass(frozen=True)
class Point:
    """Where a cell stands on the x axis. Without a column it is the first of the preset."""

    x: Place
    row: str
    column: str | None = None


@dataclass(frozen=True)
class Line:
    name: str
    points: tuple[Point, ...] = ()
    level: str | None = None  # a row

    @property
    def names(self) -> list[tuple[str, str | None]]:
        """The rows and columns that it names."""
        return [(self.level, None)] if self.level else [(point.row, point.column) for point in self.points]


@dataclass(frozen=True)
class Figure:
    """A panel of a figure."""

    title: str
    x: str
    lines: tuple[Line, ...]
    value: str | None = None  # by default the first of the preset


def parse_figure(item: Mapping[str, Any]) -> Figure:
    """The figure of a TOML table."""
    lines = [
        Line(line["name"], tuple(Point(*point) for point in line.get("points", ())), line.get("level"))
        for line in item["lines"]
    ]
    for line in lines:
        if bool(line.points) == bool(line.level):
            raise ValueError(f"the line {line.name!r} of {item['title']!r} needs points or a level")
    return Figure(item["title"], item["x"], tuple(lines), item.get("value"))


def names_in(figures: Sequence[Figure]) -> tuple[set[str], set[str], set[str]]:
    """All rows, columns and values that figures name."""
    named = [name for figure in figures for line in figure.lines for name in line.names]
    values = {figure.value for figure in figures if figure.value}
    return {row for row, _ in named}, {column for _, column in named if column}, values


def drawn(preset: Preset, rows: Sequence[Row]) -> list[tuple[str, Any]]:
    """(title, plotly figure) of every panel that has results."""
    found = [(figure.title, panel(preset, figure, rows)) for figure in preset.figures]
    return [(title, fig) for title, fig in found if fig.data]


def panel(preset: Preset, figure: Figure, rows: Sequence[Row]) -> Any:
    value = next(v for v in preset.values if v.name == (figure.value or preset.values[0].name))
    first = preset.columns[0].name

    def numbers(row: str, column: str | None) -> list[float]:
        own = [one for one in rows if (one["row"], one["column"]) == (row, column or first)]
        return [value.factor * one["values"][value.name][0] for one in own if (one.get("values") or {}).get(value.name)]

    fig = plots.figure(figure.title, figure.x, value.name)
    places = [point.x for line in figure.lines for point in line.points]
    for number, line in enumerate(figure.lines):
        points = line.points or tuple(Point(place, str(line.level)) for place in ends(places))
        known = [(point.x, found) for point in points if (found := numbers(point.row, point.column))]
        if not known:
            continue
        halves = [0.0 if line.level else half_width(found) for _, found in known]
        fig.add_scatter(
            x=[x for x, _ in known], y=[float(np.mean(found)) for _, found in known], name=line.name,
            mode="lines" if line.level else "lines+markers",
            error_y={"type": "data", "array": halves, "visible": any(halves)},
            line={"color": plots.COLOURS[number % len(plots.COLOURS)], "dash": "dash" if line.level else "solid"},
        )  # fmt: skip
    return fig


def ends(places: Sequence[Place]) -> list[Place]:
    """The first and the last place of an axis: of numbers the smallest and the largest."""
    if not places:
        return []
    if all(isinstance(place, (int, float)) for place in places):
        return sorted({min(places), max(places)})
    return list(dict.fromkeys((places[0], places[-1])))


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean; 0 for one value, which has none."""
    if len(values) < 2:
        return 0.0
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
