"""Figures about clients: stages with bands, own data against all data, clients below a threshold, drift and weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from undrift.core.headline import ACCURACY
from undrift.evaluate.views import Query, curve, share_below
from undrift.report.plots import COLOURS, STAGES, figure, line_mode, style
from undrift.store.record import ClientNames, client_names, headline_of


def bands(query: Query, metric: str | None = None) -> Any:
    """All stages of one run. The line is the mean over clients, the band one standard deviation over clients. Without a
    metric it is the headline."""
    metric = metric or headline_of(query).name
    fig = figure(f"{metric} of every stage; bands: one std over clients", "round", metric)
    for number, (place, name) in enumerate(STAGES.items()):
        values = curve(query, *place, metric)
        if not len(values):
            continue
        colour, x = COLOURS[number], (values.rounds + 1).tolist()
        mean, std = values.mean, values.std
        if len(values.clients) > 1:
            fig.add_scatter(
                x=[*x, *x[::-1]],
                y=[*(mean + std), *(mean - std)[::-1]],
                fill="toself",
                fillcolor=colour,
                opacity=0.15,
                mode="lines",
                line={"width": 0},
                hoverinfo="skip",
                showlegend=False,
                legendgroup=name,
            )
        fig.add_scatter(x=x, y=mean, name=name, mode=line_mode(x), legendgroup=name, line=style(number))
    return fig


def trade_off(runs: Sequence[tuple[str, Query]], stage: str, means: bool = False) -> Any:
    """The headline on own data against that on all data, at the last evaluated round: a mark per client, or one per run
    with the clients' spread."""
    what = {"L1": "on receipt", "L2": "after training"}[stage]
    headline = headline_of(runs[0][1]) if runs else ACCURACY
    axes = (f"{headline.title}(G): whole test set", f"{headline.title}(L): own test slice")
    fig = figure(f"{stage}, {what}: own data against all data", *axes)
    for name, query in runs:
        own, whole = (last_values(query, stage, data, headline.name) for data in ("own", "global"))
        both = sorted(set(own) & set(whole))
        x, y = [whole[client] for client in both], [own[client] for client in both]
        if not both:
            continue
        if means:
            fig.add_scatter(
                x=[np.mean(x)],
                y=[np.mean(y)],
                name=name,
                mode="markers+text",
                text=[name],
                textposition="top center",
                marker={"size": 11},
                error_x={"array": [np.std(x)], "thickness": 0.7, "width": 2},
                error_y={"array": [np.std(y)], "thickness": 0.7, "width": 2},
            )
        else:
            names = client_names(query)
            text = [names.of(client) for client in both]
            fig.add_scatter(x=x, y=y, name=name, mode="markers", marker={"size": 8, "opacity": 0.75}, text=text)
    fig.update_layout(hovermode="closest", height=460)
    return fig


def last_values(query: Query, stage: str, data: str, metric: str = "accuracy") -> dict[int, float]:
    """The values of the clients at the last evaluated round, by client."""
    values = curve(query, stage, data, metric)
    if not len(values):
        return {}
    last = zip(values.clients, values.values[-1])
    return {client: float(v) for client, v in last if client is not None and not np.isnan(v)}


def below(runs: Sequence[tuple[str, Query]], epsilon: float, stage: str = "L2") -> Any:
    """The share of evaluated clients whose headline on their own data is worse than ε, over the rounds."""
    headline = headline_of(runs[0][1]) if runs else ACCURACY
    side = "above" if headline.lower else "below"
    fig = figure(f"clients {side} {epsilon:g} ({stage} {headline.title}(L))", "round", "share of evaluated clients")
    for name, query in runs:
        values = curve(query, stage, "own", headline.name)
        if len(values):
            x, y = (values.rounds + 1).tolist(), share_below(values, epsilon, headline.lower)
            fig.add_scatter(x=x, y=y, name=name, mode="lines+markers")
    fig.update_yaxes(range=[-0.02, 1.02])
    return fig


def weights(query: Query) -> Any:
    """The aggregation weight of each client, round by round. Rounds without the client are empty."""
    rows = query("SELECT round, client, value FROM notes WHERE name='weight' AND client IS NOT NULL ORDER BY rowid")
    weights = [(r, c, json.loads(v)) for r, c, v in rows]
    return per_client("aggregation weight per client", weights, client_names(query))


def drift(query: Query) -> Any:
    """The distance of each client's trained model from the one it received (the diagnostic `drift`)."""
    rows = query("SELECT round, client, value FROM metrics WHERE metric='drift' AND client IS NOT NULL")
    return per_client("drift ‖θ_k − θ‖ per client", rows, client_names(query))


def per_client(title: str, rows: Sequence[tuple[Any, ...]], names: ClientNames) -> Any:
    """A heat map of (round, client, value)."""
    fig = figure(title, "round", "client")
    rounds, clients = sorted({r for r, _, _ in rows}), sorted({c for _, c, _ in rows})
    grid = np.full((len(clients), len(rounds)), np.nan)
    across, along = ({key: i for i, key in enumerate(keys)} for keys in (rounds, clients))
    for round, client, value in rows:
        grid[along[client], across[round]] = value
    cells = [[None if np.isnan(v) else float(v) for v in row] for row in grid]
    fig.add_heatmap(x=[r + 1 for r in rounds], y=[names.short(c) for c in clients], z=cells, colorscale="Blues", zmin=0)
    fig.update_layout(hovermode="closest")
    fig.update_yaxes(type="category")
    return fig
