"""Figures of what diagnostics recorded: confusion, loss landscape, features before and after local training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from undrift.evaluate.views import curve
from undrift.report.plots import COLOURS, Rows, figure


def recorded(rows: Rows, diagnostic: str) -> tuple[int, int | None, Any] | None:
    """(round, client, value) of the newest picture of a diagnostic."""
    found = rows(
        "SELECT round, client, value FROM notes WHERE part=? ORDER BY rowid DESC LIMIT 1", (f"diagnose.{diagnostic}",)
    )
    return (found[0][0], found[0][1], json.loads(found[0][2])) if found else None


def confusion(rows: Rows) -> Any | None:
    """Share of each class (row) that the global model takes for each class (column)."""
    found = recorded(rows, "confusion")
    if found is None:
        return None
    labels, counts = found[2]["labels"], found[2]["counts"]
    shares = [[n / max(1, sum(row)) for n in row] for row in counts]
    fig = figure(f"confusion of the global model after round {found[0] + 1}", "taken for", "is")
    fig.add_heatmap(
        x=labels, y=labels, z=shares, colorscale="Blues", zmin=0, zmax=1, text=counts, texttemplate="%{text}"
    )
    fig.update_layout(hovermode="closest", height=460)
    fig.update_xaxes(type="category")
    fig.update_yaxes(type="category", autorange="reversed")
    return fig


def landscape(rows: Rows) -> Any | None:
    """The loss around the final model as a surface."""
    found = recorded(rows, "landscape")
    if found is None:
        return None
    steps, loss = found[2]["steps"], found[2]["loss"]
    fig = figure("loss around the final model, two filter-normalised directions", "", "")
    fig.add_surface(x=steps, y=steps, z=loss, colorscale="Viridis", contours={"z": {"show": True, "usecolormap": True}})
    fig.update_layout(
        height=520, scene={"zaxis": {"title": "loss"}, "xaxis": {"title": "first"}, "yaxis": {"title": "second"}}
    )
    return fig


def embedding(rows: Rows) -> Any | None:
    """Features of test samples under the model a client was sent (rings) and the one it trained (dots)."""
    found = recorded(rows, "embedding")
    if found is None:
        return None
    round, client, points = found
    fig = figure(f"features before (rings) and after (dots) the training of client {client} in round {round + 1}",
                 "first direction", "second direction")  # fmt: skip
    for number, label in enumerate(sorted(set(points["labels"]))):
        colour = COLOURS[number % len(COLOURS)]
        for when, symbol in (("before", "circle-open"), ("after", "circle")):
            some = [point for point, own in zip(points[when], points["labels"]) if own == label]
            fig.add_scatter(x=[p[0] for p in some], y=[p[1] if len(p) > 1 else 0 for p in some], mode="markers",
                            name=f"class {label}", legendgroup=str(label), showlegend=when == "after",
                            marker={"color": colour, "symbol": symbol, "size": 5, "opacity": 0.7})  # fmt: skip
    fig.update_layout(hovermode="closest", height=520)
    return fig


def numbers(rows: Rows, title: str, metrics: Sequence[str]) -> Any | None:
    """Diagnostic numbers of the global model over the rounds, those that were recorded."""
    fig = figure(title, "round", "")
    for metric in metrics:
        for data in ("train", "global", "ood"):
            found = curve(rows, "G", data, metric)
            if len(found) and None in found.clients:
                values = found.values[:, found.clients.index(None)]
                fig.add_scatter(x=(found.rounds + 1).tolist(), y=values, name=metric, mode="lines+markers")
    return fig if fig.data else None
