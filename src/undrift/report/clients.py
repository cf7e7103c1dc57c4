"""Figures about clients: stages with bands, Acc(L) against Acc(G), who stays below a threshold, drift and weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from undrift.evaluate.views import curve, share_below
from undrift.report.plots import COLOURS, STAGES, Rows, figure


def bands(rows: Rows, metric: str = "accuracy") -> Any:
    """All stages of one run: the mean over clients as a line, one standard deviation of the clients as a band."""
    fig = figure(f"{metric} of every stage; bands: one std over clients", "round", metric)
    for number, (place, name) in enumerate(STAGES.items()):
        found = curve(rows, *place, metric)
        if not len(found):
            continue
        colour, x = COLOURS[number], (found.rounds + 1).tolist()
        mean, std = found.mean, found.std
        if len(found.clients) > 1:
            fig.add_scatter(
                x=[*x, *x[::-1]], y=[*(mean + std), *(mean - std)[::-1]], fill="toself", fillcolor=colour, opacity=0.15, mode="lines",
                line={"width": 0}, hoverinfo="skip", showlegend=False, legendgroup=name,
            )  # fmt: skip
        fig.add_scatter(x=x, y=mean, name=name, mode="lines+markers" if len(x) < 12 else "lines", legendgroup=name,
                        line={"color": colour})  # fmt: skip
    return fig


def trade_off(runs: Sequence[tuple[str, Rows]], stage: str, means: bool = False) -> Any:
    """Acc(L) against Acc(G) at the last judged round: a mark per client, or one per run with the clients' spread."""
    what = {"L1": "on receipt", "L2": "after training"}[stage]
    fig = figure(f"{stage}, {what}: own distribution against all", "Acc(G): whole test set", "Acc(L): own test slice")
    for name, rows in runs:
        own, whole = (last_values(rows, stage, data) for data in ("own", "global"))
        both = sorted(set(own) & set(whole))
        x, y = [whole[client] for client in both], [own[client] for client in both]
        if not both:
            continue
        if means:
            fig.add_scatter(x=[np.mean(x)], y=[np.mean(y)], name=name, mode="markers+text", text=[name],
                            textposition="top center", marker={"size": 11},
                            error_x={"array": [np.std(x)], "thickness": 0.7, "width": 2},
                            error_y={"array": [np.std(y)], "thickness": 0.7, "width": 2})  # fmt: skip
        else:
            fig.add_scatter(x=x, y=y, name=name, mode="markers", marker={"size": 8, "opacity": 0.75},
                            text=[f"client {client}" for client in both])  # fmt: skip
    fig.update_layout(hovermode="closest", height=460)
    return fig


def last_values(rows: Rows, stage: str, data: str, metric: str = "accuracy") -> dict[int, float]:
    found = curve(rows, stage, data, metric)
    if not len(found):
        return {}
    return {
        client: float(v) for client, v in zip(found.clients, found.values[-1]) if client is not None and not np.isnan(v)
    }


def below(runs: Sequence[tuple[str, Rows]], epsilon: float, stage: str = "L2") -> Any:
    """The share of judged clients whose Acc(L) is below ε, over the rounds."""
    fig = figure(f"clients below {epsilon:g} ({stage} Acc(L))", "round", "share of judged clients")
    for name, rows in runs:
        found = curve(rows, stage, "own")
        if len(found):
            fig.add_scatter(
                x=(found.rounds + 1).tolist(), y=share_below(found, epsilon), name=name, mode="lines+markers"
            )
    fig.update_yaxes(range=[-0.02, 1.02])
    return fig


def weights(rows: Rows) -> Any:
    """How much each client counted, round by round (— where it did not take part)."""
    found = rows("SELECT round, client, value FROM notes WHERE name='weight' AND client IS NOT NULL ORDER BY rowid")
    return per_client("aggregation weight per client", [(r, c, json.loads(v)) for r, c, v in found])


def drift(rows: Rows) -> Any:
    """How far each client went from the model it was sent (the diagnostic `drift`)."""
    found = rows("SELECT round, client, value FROM metrics WHERE metric='drift' AND client IS NOT NULL")
    return per_client("drift ‖θ_k − θ‖ per client", found)


def per_client(title: str, found: Sequence[tuple[Any, ...]]) -> Any:
    """Clients against rounds, the value as colour."""
    fig = figure(title, "round", "client")
    rounds, clients = sorted({r for r, _, _ in found}), sorted({c for _, c, _ in found})
    grid = np.full((len(clients), len(rounds)), np.nan)
    across, along = ({key: i for i, key in enumerate(keys)} for keys in (rounds, clients))
    for round, client, value in found:
        grid[along[client], across[round]] = value
    cells = [[None if np.isnan(v) else float(v) for v in row] for row in grid]
    fig.add_heatmap(x=[r + 1 for r in rounds], y=[str(c) for c in clients], z=cells, colorscale="Blues", zmin=0)
    fig.update_layout(hovermode="closest")
    fig.update_yaxes(type="category")
    return fig
