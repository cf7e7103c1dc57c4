"""Figures of recorded rows (plotly). One place for the look: every page of Undrift uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Rows = Callable[..., list[tuple[Any, ...]]]
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")
CONFIG = {
    "displayModeBar": "hover", "displaylogo": False, "showSendToCloud": False, "plotlyServerURL": "", "responsive": True,
}  # fmt: skip
AXIS = {
    "gridcolor": "#ebf0f8", "linecolor": "#ebf0f8", "zerolinecolor": "#ebf0f8", "zerolinewidth": 2, "automargin": True,
    "ticks": "", "title": {"standoff": 15},
}  # fmt: skip
# plotly's own templates describe every kind of trace there is: checking one takes longer than drawing a figure of ours.
LOOK = {"layout": {
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
}


def figure(title: str, x: str, y: str) -> Any:
    import plotly.graph_objects as go

    layout = go.Layout(
        title={"text": title, "x": 0.02, "font": {"size": 15}}, template=LOOK, margin={"l": 56, "r": 16, "t": 48, "b": 44},
        xaxis={"title": x}, yaxis={"title": y}, legend={"orientation": "h", "y": -0.2}, height=380,
    )  # fmt: skip
    return go.Figure(layout=layout)


def trajectory(runs: Sequence[tuple[str, Rows]], metric: str = "accuracy", stage: tuple[str, str] | None = None) -> Any:
    """A metric over the rounds: one line per run for one stage, or all stages of a single run."""
    stages = [stage] if stage else list(STAGES)
    fig = figure(STAGES[stage] if stage else f"{metric} over the rounds", "round", metric)
    for name, rows in runs:
        for one in stages:
            found = rows(
                "SELECT round, AVG(value) FROM metrics WHERE stage=? AND data=? AND metric=? GROUP BY round ORDER BY round",
                (*one, metric),
            )
            if found:
                label = name if stage else STAGES[one]
                fig.add_scatter(x=[r + 1 for r, _ in found], y=[v for _, v in found], name=label, mode="lines+markers"
                                if len(found) < 12 else "lines")  # fmt: skip
    return fig


def bands(runs: Sequence[Any], metric: str, stage: tuple[str, str]) -> Any:
    """A metric of one stage over the rounds: the mean over a method's seeds, and a band of one standard deviation where
    there are several. `runs` have `label` and `rows`."""
    fig = figure(STAGES[stage], "round", metric)
    for number, label in enumerate(dict.fromkeys(run.label for run in runs)):
        found: dict[int, list[float]] = {}
        for run in runs:
            if run.label == label:
                for round, value in run.rows(
                    "SELECT round, AVG(value) FROM metrics WHERE stage=? AND data=? AND metric=? GROUP BY round",
                    (*stage, metric),
                ):
                    if value is not None:
                        found.setdefault(round, []).append(value)
        if not found:
            continue
        colour = COLOURS[number % len(COLOURS)]
        x = [round + 1 for round in sorted(found)]
        mean = np.array([np.mean(found[round]) for round in sorted(found)])
        if max(map(len, found.values())) > 1:
            half = np.array([np.std(found[round], ddof=1) if len(found[round]) > 1 else 0.0 for round in sorted(found)])
            fig.add_scatter(
                x=[*x, *x[::-1]], y=[*(mean + half), *(mean - half)[::-1]], fill="toself", line={"width": 0}, opacity=0.18,
                fillcolor=colour, hoverinfo="skip", showlegend=False, legendgroup=label, mode="lines", name=f"{label} ± std",
            )  # fmt: skip
        fig.add_scatter(x=x, y=mean.tolist(), name=label, legendgroup=label, line={"color": colour},
                        mode="lines+markers" if len(x) < 12 else "lines")  # fmt: skip
    return fig


def against_size(runs: Sequence[tuple[str, Rows]], sizes: dict[int, int]) -> Any:
    """L1 Acc(L) of every judged client against how much data it has: whom does a method serve?"""
    fig = figure("L1 Acc(L) against the client's number of samples", "training samples", "accuracy on own slice")
    for name, rows in runs:
        found = rows(
            "SELECT client, value FROM metrics WHERE stage='L1' AND data='own' AND metric='accuracy' AND round="
            "(SELECT MAX(round) FROM metrics WHERE stage='L1' AND data='own') ORDER BY client"
        )
        fig.add_scatter(x=[sizes.get(client, 0) for client, _ in found], y=[value for _, value in found], mode="markers",
                        name=name, text=[f"client {client}" for client, _ in found], marker={"size": 7, "opacity": 0.7})  # fmt: skip
    fig.update_layout(hovermode="closest")
    fig.update_xaxes(type="log")
    return fig


def weights(runs: Sequence[tuple[str, Rows]]) -> Any:
    """Who counted how much in which round: a map of clients and rounds, one method at a time."""
    import plotly.graph_objects as go

    fig = figure("weight of each client in the mean", "round", "client")
    shown: list[str] = []
    for name, rows in runs:
        found = rows("SELECT round, client, value FROM notes WHERE name='weight' AND client IS NOT NULL")
        if not found:
            continue
        rounds, clients = sorted({r for r, _, _ in found}), sorted({c for _, c, _ in found})
        at = {(r, c): float(value) for r, c, value in found}
        z = [[at.get((round, client)) for round in rounds] for client in clients]
        fig.add_trace(go.Heatmap(x=[r + 1 for r in rounds], y=clients, z=z, colorscale="Blues", zmin=0, name=name, visible=not shown,
                                 hovertemplate="round %{x}, client %{y}: %{z:.4f}<extra></extra>"))  # fmt: skip
        shown.append(name)
    if len(shown) > 1:
        buttons = [
            {"label": name, "method": "restyle", "args": [{"visible": [other == name for other in shown]}]}
            for name in shown
        ]
        menu = {
            "buttons": buttons,
            "x": 0,
            "xanchor": "left",
            "y": 1.16,
            "yanchor": "top",
        }  # the mode bar is at the right
        fig.update_layout(updatemenus=[menu])
    fig.update_layout(hovermode="closest", height=440)
    return fig


def client_bars(runs: Sequence[tuple[str, Rows]]) -> Any:
    """Acc(L) of every judged client at the last judged round, sorted: who is left behind."""
    fig = figure("L1 Acc(L) per client, sorted: who is left behind", "clients, worst first", "accuracy on own slice")
    for name, rows in runs:
        found = rows(
            "SELECT value FROM metrics WHERE stage='L1' AND data='own' AND metric='accuracy' AND round="
            "(SELECT MAX(round) FROM metrics WHERE stage='L1' AND data='own') ORDER BY value"
        )
        fig.add_scatter(x=list(range(1, len(found) + 1)), y=[v for (v,) in found], name=name, mode="lines+markers",
                        line={"shape": "hv"})  # fmt: skip
    return fig


def holdings(counts: Sequence[Sequence[int]], labels: Sequence[str]) -> Any:
    """Who holds what: one bubble per non-zero cell of the client × class matrix, its area the number of samples."""
    fig = figure("who holds what", "client", "class")
    cells = [(k, c, n) for k, row in enumerate(counts) for c, n in enumerate(row) if n]
    most = max((n for _, _, n in cells), default=1)
    widest = min(26.0, max(9.0, 1600 / max(len(counts), 1)))  # pixels: a hundred clients still stand apart
    fig.add_scatter(
        x=[k for k, _, _ in cells], y=[labels[c] for _, c, _ in cells], mode="markers",
        marker={"size": [3 + (widest - 3) * (n / most) ** 0.5 for _, _, n in cells], "opacity": 0.75},
        text=[f"client {k}: {n} of {labels[c]}" for k, c, n in cells], hoverinfo="text",
    )  # fmt: skip
    fig.update_layout(hovermode="closest", showlegend=False)
    fig.update_xaxes(range=[-1, len(counts)])  # as wide as the bars of the sizes below it
    fig.update_traces(cliponaxis=False)
    fig.update_yaxes(categoryorder="array", categoryarray=list(labels))
    return fig
