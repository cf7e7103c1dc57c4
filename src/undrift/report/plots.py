"""Figures of recorded rows, and the plotly template that every page of Undrift uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from undrift.core.headline import ACCURACY
from undrift.evaluate.views import Query
from undrift.store.record import client_names, headline_of

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")  # with the colours: lines differ without colour vision too
POINTS = 250  # of a curve: more than a screen can show apart
CONFIG = {
    "displayModeBar": "hover", "displaylogo": False, "showSendToCloud": False, "plotlyServerURL": "", "responsive": True,
}  # fmt: skip
AXIS = {
    "gridcolor": "#ebf0f8", "linecolor": "#ebf0f8", "zerolinecolor": "#ebf0f8", "zerolinewidth": 2, "automargin": True,
    "ticks": "", "title": {"standoff": 15},
}  # fmt: skip
# plotly's own templates describe every kind of trace: validating one takes longer than drawing one of our figures.
TEMPLATE = {"layout": {
    "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#2a3f5f"}, "colorway": list(COLOURS),
    "paper_bgcolor": "white", "plot_bgcolor": "white", "hoverlabel": {"align": "left"}, "hovermode": "x unified",
    "autotypenumbers": "strict", "xaxis": AXIS, "yaxis": AXIS, "shapedefaults": {"line": {"color": "#2a3f5f"}},
}}  # fmt: skip
STAGES = {
    ("G", "global"): "G: global model on the whole test set",
    ("L1", "own"): "L1: on receipt, own test slices (mean over clients)",
    ("L1", "global"): "L1: on receipt, whole test set (mean over clients)",
    ("L2", "own"): "L2: after training, own test slices (mean over clients)",
    ("L2", "global"): "L2: after training, whole test set (mean over clients)",
    ("train", "train"): "during local training, own training data (mean over the cohort)",
}
TITLES = {
    **STAGES,
    ("G", "validation"): "G: global model on validation data",
    ("L1", "validation"): "L1: on receipt, own validation data (mean over clients)",
}


def layout(title: str, x: str, y: str) -> dict[str, Any]:
    """The layout of every figure."""
    return {
        "title": {"text": title, "x": 0.02, "font": {"size": 15}}, "template": TEMPLATE,
        "margin": {"l": 56, "r": 16, "t": 48, "b": 44}, "xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}},
        "legend": {"orientation": "h", "y": -0.2}, "height": 380,
    }  # fmt: skip


def figure(title: str, x: str, y: str) -> Any:
    import plotly.graph_objects as go

    return go.Figure(layout=go.Layout(layout(title, x, y)))


@dataclass(frozen=True)
class PlainFigure:
    """A figure that plotly does not check. Checking costs a millisecond per line, and the live page draws again and again."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {"data": [dict(line) for line in self.data], "layout": dict(self.layout)}


def line_mode(points: Sized) -> str:
    """Markers on lines of few points."""
    return "lines+markers" if len(points) < 12 else "lines"


def style(number: int) -> dict[str, str]:
    """Colour and dash of the line of a method, by its number. The same on every page."""
    return {"color": COLOURS[number % len(COLOURS)], "dash": DASHES[number % len(DASHES)]}


def lines(
    title: str, x: str, y: str, curves: Sequence[tuple[str, int, Sequence[float], Sequence[float]]]
) -> PlainFigure:
    """Curves of runs: (name, number of the method, x, y) of each."""
    drawn = [
        {
            "type": "scatter", "x": list(along), "y": list(values), "name": name, "mode": line_mode(along),
            "line": style(number),
        }
        for name, number, along, values in curves
    ]  # fmt: skip
    return PlainFigure(drawn, layout(title, x, y))


class Labelled(Protocol):
    """A run with a label and a record."""

    @property
    def label(self) -> str: ...
    def query(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]: ...


def bands(
    runs: Sequence[Labelled], metric: str, stage: tuple[str, str], numbers: Mapping[str, int] | None = None
) -> Any:
    """A metric of one stage over the rounds: the mean over the seeds of a method, and with several seeds a band of one
    standard deviation. `numbers`: of the methods, which choose their colours; by default in their order."""
    fig = figure(TITLES[stage], "round", metric)
    for place, label in enumerate(dict.fromkeys(run.label for run in runs)):
        number = place if numbers is None else numbers[label]
        by_round = thinned(values_by_round([run for run in runs if run.label == label], metric, stage))
        if not by_round:
            continue
        add_band(fig, label, {round + 1: values for round, values in by_round.items()}, style(number))
    return fig


def add_band(fig: Any, label: str, by_x: Mapping[float, Sequence[float]], line: Mapping[str, str]) -> None:
    """A line through the means of the values at each x, and where there are several a band of one standard deviation."""
    x = list(by_x)
    mean = np.array([np.mean(values) for values in by_x.values()])
    if max(map(len, by_x.values())) > 1:
        half = np.array([np.std(values, ddof=1) if len(values) > 1 else 0.0 for values in by_x.values()])
        fig.add_scatter(
            x=[*x, *x[::-1]],
            y=[*(mean + half), *(mean - half)[::-1]],
            fill="toself",
            line={"width": 0},
            opacity=0.18,
            fillcolor=line["color"],
            hoverinfo="skip",
            showlegend=False,
            legendgroup=label,
            mode="lines",
            name=f"{label} ± std",
        )
    fig.add_scatter(x=x, y=mean.tolist(), name=label, legendgroup=label, line=dict(line), mode=line_mode(x))


def values_by_round(runs: Sequence[Labelled], metric: str, stage: tuple[str, str]) -> dict[int, list[float]]:
    """One value per run and round, the mean over clients; rounds in order."""
    values: dict[int, list[float]] = {}
    for run in runs:
        for round, value in run.query(
            "SELECT round, AVG(value) FROM metrics WHERE stage=? AND data=? AND metric=? GROUP BY round",
            (*stage, metric),
        ):
            if value is not None:
                values.setdefault(round, []).append(value)
    return dict(sorted(values.items()))


def thinned(by_round: dict[int, list[float]]) -> dict[int, list[float]]:
    """At most `POINTS` rounds of a curve, evenly spaced, the first and the last among them."""
    rounds = list(by_round)
    return {rounds[place]: by_round[rounds[place]] for place in kept_places(len(rounds))}


def kept_places(count: int) -> list[int]:
    """The places of the points that are drawn of a curve of so many."""
    if count <= POINTS:
        return list(range(count))
    return [int(place) for place in np.unique(np.linspace(0, count - 1, POINTS).round().astype(int))]


def against_size(runs: Sequence[tuple[str, Query]], sizes: dict[int, int]) -> Any:
    """L1's headline on its own data of every evaluated client against its number of training samples."""
    headline = headline_of(runs[0][1]) if runs else ACCURACY
    title = f"L1 {headline.title}(L) against the client's number of samples"
    fig = figure(title, "training samples", f"{headline.name} on own slice")
    for name, query in runs:
        names = client_names(query)
        rows = query(
            "SELECT client, value FROM metrics WHERE stage='L1' AND data='own' AND metric=? AND round="
            "(SELECT MAX(round) FROM metrics WHERE stage='L1' AND data='own') ORDER BY client",
            (headline.name,),
        )
        fig.add_scatter(
            x=[sizes.get(client, 0) for client, _ in rows],
            y=[value for _, value in rows],
            mode="markers",
            name=name,
            text=[names.of(client) for client, _ in rows],
            marker={"size": 7, "opacity": 0.7},
        )
    fig.update_layout(hovermode="closest")
    fig.update_xaxes(type="log")
    return fig


def weights(runs: Sequence[tuple[str, Query]]) -> Any:
    """The aggregation weight of each client in each round: a heat map, one method at a time."""
    import plotly.graph_objects as go

    fig = figure("aggregation weight of each client", "round", "client")
    shown: list[str] = []
    for name, query in runs:
        rows = query("SELECT round, client, value FROM notes WHERE name='weight' AND client IS NOT NULL")
        if not rows:
            continue
        rounds, clients = sorted({r for r, _, _ in rows}), sorted({c for _, c, _ in rows})
        weight, names = {(r, c): float(value) for r, c, value in rows}, client_names(query)
        fig.add_trace(
            go.Heatmap(
                x=[r + 1 for r in rounds],
                y=[names.short(client) for client in clients],
                z=[[weight.get((round, client)) for round in rounds] for client in clients],
                colorscale="Blues",
                zmin=0,
                name=name,
                visible=not shown,
                hovertemplate="round %{x}, client %{y}: %{z:.4f}<extra></extra>",
            )
        )
        shown.append(name)
    if len(shown) > 1:
        buttons = [
            {"label": name, "method": "restyle", "args": [{"visible": [other == name for other in shown]}]}
            for name in shown
        ]
        # At the left: plotly's mode bar is at the right.
        menu = {"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.16, "yanchor": "top"}
        fig.update_layout(updatemenus=[menu])
    fig.update_layout(hovermode="closest", height=440)
    return fig


WALLS = ("orders", "clients", "aggregation", "evaluation", "store")  # they add up to a round's wall time


def round_times(query: Query) -> Any:
    """Seconds of every round, and where they go; None if the record has no times."""
    spent: dict[str, dict[int, float]] = {}
    for round, what, seconds in query("SELECT round, what, seconds FROM times ORDER BY round"):
        spent.setdefault(what, {})[round] = seconds
    shown = {what: spent[what] for what in WALLS if any(spent.get(what, {}).values())}
    if not shown:
        return None
    fig = figure("seconds of a round, and where they go", "round", "seconds")
    rounds = sorted({round for by_round in shown.values() for round in by_round})
    rounds = [rounds[place] for place in kept_places(len(rounds))]
    for number, (what, by_round) in enumerate(shown.items()):
        values = [max(0.0, by_round.get(round, 0.0)) for round in rounds]
        fig.add_scatter(
            x=[round + 1 for round in rounds], y=values, name=what, mode="lines", stackgroup="one",
            line={**style(number), "width": 1},
        )  # fmt: skip
    return fig


def client_bars(runs: Sequence[tuple[str, Query]]) -> Any:
    """The headline on its own data of every evaluated client at the last evaluated round, the worst first."""
    headline = headline_of(runs[0][1]) if runs else ACCURACY
    fig = figure(f"L1 {headline.title}(L) per client, sorted", "clients, worst first", f"{headline.name} on own slice")
    for name, query in runs:
        rows = query(
            "SELECT value FROM metrics WHERE stage='L1' AND data='own' AND metric=? AND round="
            "(SELECT MAX(round) FROM metrics WHERE stage='L1' AND data='own') ORDER BY ? * value",
            (headline.name, headline.sign),
        )
        x, y = list(range(1, len(rows) + 1)), [value for (value,) in rows]
        fig.add_scatter(x=x, y=y, name=name, mode="lines+markers", line={"shape": "hv"})
    return fig


def label_bubbles(counts: Sequence[Sequence[int]], labels: Sequence[str], names: Sequence[str]) -> Any:
    """Samples per client and class: one bubble per non-zero cell, its area the number of samples."""
    fig = figure("samples per client and class", "client", "class")
    cells = [(k, c, n) for k, row in enumerate(counts) for c, n in enumerate(row) if n]
    most = max((n for _, _, n in cells), default=1)
    widest = min(26.0, max(9.0, 1600 / max(len(counts), 1)))  # pixels: the bubbles of a hundred clients do not overlap
    fig.add_scatter(
        x=[k for k, _, _ in cells],
        y=[labels[c] for _, c, _ in cells],
        mode="markers",
        marker={"size": [3 + (widest - 3) * (n / most) ** 0.5 for _, _, n in cells], "opacity": 0.75},
        text=[f"{names[k]}: {n} of {labels[c]}" for k, c, n in cells],
        hoverinfo="text",
    )
    fig.update_layout(hovermode="closest", showlegend=False)
    fig.update_xaxes(range=[-1, len(counts)])  # the same range as the bar chart of sizes below it
    fig.update_traces(cliponaxis=False)
    fig.update_yaxes(categoryorder="array", categoryarray=list(labels))
    return fig
