"""Plotly figures of a preset. Whiskers are the 95 % interval of the mean over seeds, bands one standard deviation; one seed has
neither."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undrift.papers.figures.kinds import Curves, OverParameter, Partition, Pictures, Place, Point, Schedule
from undrift.papers.figures.series import series_of
from undrift.report import pictures, plots

if TYPE_CHECKING:
    from undrift.papers.papers import Preset
    from undrift.papers.scales import Scaled

Row = dict[str, Any]
Panel = tuple[str, Any]  # title, plotly figure


def drawn(preset: Preset, rows: Sequence[Row], asked: Scaled | None = None) -> list[Panel]:
    """(title, plotly figure) of every panel that has results. Partitions and schedules need the settings that were asked for."""
    made = (DRAW[type(figure)](figure, preset, rows, asked) for figure in preset.figures)
    return [panel for panels in made for panel in panels if panel[1].data]


# ---- a value over a parameter ----------------------------------------------------------------------------------------


def over_parameter(figure: OverParameter, preset: Preset, rows: Sequence[Row], asked: Scaled | None) -> Iterator[Panel]:
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
    if over_decades(places):
        fig.update_xaxes(type="log", tickvals=sorted(set(places)))
    yield figure.title, fig


def over_decades(places: Sequence[Place]) -> bool:
    """Whether places are too far apart for a linear axis, which would draw all but the last at its left end."""
    numbers = [place for place in places if isinstance(place, (int, float))]
    return bool(numbers) and len(numbers) == len(places) and min(numbers) > 0 and max(numbers) >= 30 * min(numbers)


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
    from scipy.special import stdtrit  # scipy.stats takes a second and 50 MB to import

    return float(stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / math.sqrt(len(values)))


# ---- curves and notes ------------------------------------------------------------------------------------------------


def curves(figure: Curves, preset: Preset, rows: Sequence[Row], asked: Scaled | None) -> Iterator[Panel]:
    by_row = line_styles(figure, figure.rows or tuple(row.name for row in preset.rows))
    columns = figure.columns or tuple(column.name for column in preset.columns)
    if figure.panels == "columns":
        lines, places = by_row, list(columns)
    else:
        lines, places = {name: plots.style(number) for number, name in enumerate(columns)}, list(by_row)
    for place in places:
        title = titled(figure.title, place, len(places))
        fig = plots.figure(title, figure.x, figure.y)
        for line, style in lines.items():
            cell = (line, place) if figure.panels == "columns" else (place, line)
            own = [row for row in rows if (row["row"], row["column"]) == cell]
            add_lines(fig, figure, own, line, style)
        yield title, fig


def add_lines(fig: Any, figure: Curves, rows: Sequence[Row], label: str, style: dict[str, str]) -> None:
    """A cell in a panel: a line per source. Several sources differ by their dashes."""
    several = len(figure.sources) > 1
    for number, source in enumerate(figure.sources):
        by_x: dict[float, list[float]] = {}
        for series in (series_of(row, source) for row in rows):
            for x, y in zip(series.get("x", ()), series.get("y", ())):
                by_x.setdefault(x, []).append(y)
        if by_x:
            name = f"{label}, {source.label}" if several else label
            plots.add_band(fig, name, thinned(by_x), {**style, "dash": plots.DASHES[number]} if several else style)


def line_styles(figure: Curves, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Colour and dash of every row. With dashed rows the dash says which group a row is of, and the colour its place there."""
    groups = (("solid", names), ("dash", figure.dashed), ("dot", figure.dotted))
    if not figure.dashed and not figure.dotted:
        return {name: plots.style(number) for number, name in enumerate(names)}
    return {
        name: {"color": plots.COLOURS[number % len(plots.COLOURS)], "dash": dash}
        for dash, group in groups
        for number, name in enumerate(group)
    }


def thinned(by_x: dict[float, list[float]]) -> dict[float, list[float]]:
    places = sorted(by_x)
    return {places[number]: by_x[places[number]] for number in plots.kept_places(len(places))}


def titled(title: str, panel: str, count: int) -> str:
    return f"{title}: {panel}" if count > 1 else title


# ---- pictures --------------------------------------------------------------------------------------------------------


def noted_pictures(figure: Pictures, preset: Preset, rows: Sequence[Row], asked: Scaled | None) -> Iterator[Panel]:
    seen = set[tuple[str, str]]()
    for row in rows:
        cell = row["row"], row["column"]
        wanted = (not figure.rows or cell[0] in figure.rows) and (not figure.columns or cell[1] in figure.columns)
        if not wanted or cell in seen:
            continue
        found = series_of(row, figure.source)
        if not found:
            continue
        seen.add(cell)
        title = f"{figure.title}: {', '.join(cell if len(preset.columns) > 1 else cell[:1])}"
        if "loss" in found and "steps" in found:
            yield title, pictures.surface(title, found["steps"], found["loss"])
            continue
        if "before" in found and "after" in found:
            yield title, pictures.features(title, found)
            continue
        (x_name, x), (y_name, y) = list(found.items())[:2]
        fig = plots.figure(title, figure.x or x_name, figure.y or y_name)
        fig.add_scattergl(x=x, y=y, mode="markers", marker={"size": 5, "opacity": 0.5})
        fig.update_layout(hovermode="closest")
        yield title, fig


# ---- without training ------------------------------------------------------------------------------------------------


def partitions(figure: Partition, preset: Preset, rows: Sequence[Row], asked: Scaled | None) -> Iterator[Panel]:
    if asked is None:
        return
    from undrift.report.label_distribution import class_names
    from undrift.study.tasks import Federations

    shown = [column for column in asked.columns if not figure.columns or column.name in figure.columns]
    for column in shown:
        federation = Federations().of(asked.settings(column))
        title = titled(figure.title, column.name, len(shown))
        clients = range(federation.clients)
        counts = [federation.counts(client).tolist() for client in clients]
        if figure.show == "sizes":
            fig = plots.figure(title, "client", "samples")
            fig.add_bar(x=list(clients), y=[sum(own) for own in counts])
        else:
            names = [federation.client_name(client) for client in clients]
            fig = plots.label_bubbles(counts, class_names(federation), names)
            fig.update_layout(title_text=title)
        yield title, fig


def schedules(figure: Schedule, preset: Preset, rows: Sequence[Row], asked: Scaled | None) -> Iterator[Panel]:
    if asked is None:
        return
    from undrift.experiment.options import from_keywords
    from undrift.experiment.setup import prepare
    from undrift.study.tasks import Federations

    axis, _, method = figure.of.partition(".")
    federations = Federations()
    shown = [row for row in asked.rows if not figure.rows or row.name in figure.rows]
    fig = plots.figure(figure.title, "round", figure.y)
    for number, row in enumerate(shown):
        settings = asked.settings(asked.columns[0], row)
        setup = prepare(from_keywords({**settings, "method": row.method}), federations.of(settings))
        compute = getattr(setup.method.one(axis), method)
        rounds = plots.kept_places(setup.plan.rounds)
        fig.add_scatter(
            x=[round + 1 for round in rounds], y=[compute(round, setup.plan) for round in rounds], name=row.name,
            mode="lines", line=plots.style(number),
        )  # fmt: skip
    yield figure.title, fig


DRAW: dict[type, Callable[..., Iterator[Panel]]] = {
    OverParameter: over_parameter, Curves: curves, Pictures: noted_pictures, Partition: partitions, Schedule: schedules,
}  # fmt: skip
