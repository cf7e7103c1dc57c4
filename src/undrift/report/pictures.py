"""Figures of diagnostics: confusion matrix, loss landscape, features before and after local training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from undrift.evaluate.views import Query, curve
from undrift.report.plots import COLOURS, figure


def recorded(query: Query, diagnostic: str) -> tuple[int, int | None, Any] | None:
    """(round, client, value) of the newest note of a diagnostic."""
    newest = query(
        "SELECT round, client, value FROM notes WHERE part=? ORDER BY rowid DESC LIMIT 1", (f"diagnose.{diagnostic}",)
    )
    return (newest[0][0], newest[0][1], json.loads(newest[0][2])) if newest else None


def confusion(query: Query) -> Any | None:
    """Share of the samples of each class (row) that the global model assigns to each class (column)."""
    found = recorded(query, "confusion")
    if found is None:
        return None
    round, _, matrix = found
    labels, counts = matrix["labels"], matrix["counts"]
    shares = [[n / max(1, sum(row)) for n in row] for row in counts]
    fig = figure(f"confusion of the global model after round {round + 1}", "predicted class", "true class")
    fig.add_heatmap(
        x=labels, y=labels, z=shares, colorscale="Blues", zmin=0, zmax=1, text=counts, texttemplate="%{text}"
    )
    fig.update_layout(hovermode="closest", height=460)
    fig.update_xaxes(type="category")
    fig.update_yaxes(type="category", autorange="reversed")
    return fig


def landscape(query: Query) -> Any | None:
    """The loss around the final model, as a surface."""
    found = recorded(query, "landscape")
    if found is None:
        return None
    title = "loss around the final model, two filter-normalised directions"
    return surface(title, found[2]["steps"], found[2]["loss"])


def surface(title: str, steps: Sequence[float], loss: Sequence[Sequence[float]]) -> Any:
    fig = figure(title, "", "")
    fig.add_surface(x=steps, y=steps, z=loss, colorscale="Viridis", contours={"z": {"show": True, "usecolormap": True}})
    fig.update_layout(
        height=520, scene={"zaxis": {"title": "loss"}, "xaxis": {"title": "first"}, "yaxis": {"title": "second"}}
    )
    return fig


def embedding(query: Query) -> Any | None:
    """Features of test samples: rings with the model that the client received, dots with the one it trained."""
    found = recorded(query, "embedding")
    if found is None:
        return None
    round, client, points = found
    title = f"features before (rings) and after (dots) the training of client {client} in round {round + 1}"
    return features(title, points)


def features(title: str, points: Mapping[str, Any]) -> Any:
    """The points that the diagnostic `embedding` noted, coloured by class."""
    fig = figure(title, "first direction", "second direction")
    for number, label in enumerate(sorted(set(points["labels"]))):
        colour = COLOURS[number % len(COLOURS)]
        for when, symbol in (("before", "circle-open"), ("after", "circle")):
            of_class = [point for point, own in zip(points[when], points["labels"]) if own == label]
            fig.add_scatter(
                x=[p[0] for p in of_class],
                y=[p[1] if len(p) > 1 else 0 for p in of_class],
                mode="markers",
                name=f"class {label}",
                legendgroup=str(label),
                showlegend=when == "after",
                marker={"color": colour, "symbol": symbol, "size": 5, "opacity": 0.7},
            )
    fig.update_layout(hovermode="closest", height=520)
    return fig


def numbers(query: Query, title: str, metrics: Sequence[str]) -> Any | None:
    """Diagnostic metrics of the global model over the rounds; None where none was recorded."""
    fig = figure(title, "round", "")
    for metric in metrics:
        for data in ("train", "global", "ood"):
            history = curve(query, "G", data, metric)
            if len(history) and None in history.clients:
                values = history.values[:, history.clients.index(None)]
                fig.add_scatter(x=(history.rounds + 1).tolist(), y=values, name=metric, mode="lines+markers")
    return fig if fig.data else None
