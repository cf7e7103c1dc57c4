"""Figures of recorded rows (plotly). One place for the look: every page of Undrift uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Rows = Callable[..., list[tuple[Any, ...]]]
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")
CONFIG = {"displaylogo": False, "showSendToCloud": False, "plotlyServerURL": "", "responsive": True}
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
        title={"text": title, "x": 0.02, "font": {"size": 15}}, template="plotly_white", colorway=list(COLOURS),
        margin={"l": 56, "r": 16, "t": 48, "b": 44}, font={"family": "system-ui, sans-serif", "size": 13},
        xaxis={"title": x}, yaxis={"title": y}, legend={"orientation": "h", "y": -0.2}, hovermode="x unified",
        height=380,
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
