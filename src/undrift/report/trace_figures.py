"""The figures of traces.py, one function per kind. Axes count rounds from 1, as in every figure."""

from __future__ import annotations

from typing import Any

from undrift.report.plots import COLOURS, figure, line_mode
from undrift.report.traces import QUANTILES, NoteValues, Trace, correlation, mean_lists, pooled, spread

CLIENTS = 100  # with a row or a line of their own; quantiles are over all clients
ROUNDS = 200  # columns of a heat map
STOPS = 8  # positions of a slider
SCALE = ["#dbe4f6", "#08306b"]  # cells without a note stay white
BANDS = ("rgba(66,105,208,0.12)", "rgba(66,105,208,0.28)", "rgba(66,105,208,0.28)", "rgba(66,105,208,0.12)")


def level(trace: Trace) -> Any:
    """A number: its quantiles over the clients and, below, a heat map of the clients."""
    lines = spread(trace.values)
    clients = all_clients(trace.values)
    if all(low == high for low, *_, high in lines.values()):  # a number of the server, or the same for all clients
        fig = figure(heading(trace), "round", trace.name)
        return fig.add_scatter(x=[r + 1 for r in lines], y=[five[2] for five in lines.values()], mode=line_mode(lines))
    fig = two_rows(trace, "client")
    banded(fig, lines)
    rounds = thinned(sorted(trace.values), ROUNDS)
    cells = [[trace.values[round].get(client) for round in rounds] for client in clients[:CLIENTS]]
    x, colorbar = [r + 1 for r in rounds], {"len": 0.45, "y": 0.2}
    fig.add_heatmap(
        x=x,
        y=[trace.names.short(client) for client in clients[:CLIENTS]],
        z=cells,
        row=2,
        col=1,
        colorscale=SCALE,
        colorbar=colorbar,
    )
    return fig.update_yaxes(type="category", row=2, col=1)  # on a number axis cells would cover missing client ids


def quantiles(trace: Trace) -> Any:
    """Five quantiles: their means over the clients and, below, a box per client for the last round."""
    fig = two_rows(trace, trace.name)
    banded(fig, mean_lists(trace.values))
    last = trace.values[max(trace.values)]
    clients = sorted(last)[:CLIENTS]  # type: ignore[type-var]
    low, lower, middle, upper, high = ([last[client][i] for client in clients] for i in range(5))
    fig.add_box(
        x=[trace.names.short(client) for client in clients],
        lowerfence=low,
        q1=lower,
        median=middle,
        q3=upper,
        upperfence=high,
        row=2,
        col=1,
        marker={"color": COLOURS[0]},
        showlegend=False,
    )
    return fig.update_xaxes(title="client, last round", type="category", row=2, col=1)


def curve(trace: Trace) -> Any:
    """Lists: one line per client, for one round at a time."""
    import plotly.graph_objects as go

    fig = figure(heading(trace), trace.style.over or "position", trace.name)
    stops = []
    for round in thinned(sorted(trace.values), STOPS):
        marks = []
        for i, values in enumerate(v for v in (trace.values, trace.beside) if v):
            lines = [(client, line) for client, line in values[round].items()][:CLIENTS]
            over = [abscissa(trace, round, len(line)) for _, line in lines]
            # One plotly trace for all lines, with gaps between them: a figure of a hundred traces is slow.
            marks.append(
                go.Scatter(
                    x=[v for x in over for v in [*x, None]],
                    y=[v for _, line in lines for v in [*line, None]],
                    text=[trace.names.of(client) for client, line in lines for _ in [*line, None]],
                    mode="lines",
                    name=(trace.name, trace.style.beside)[i],
                    line={"width": 1, "color": COLOURS[2 * i]},
                )
            )
        stops.append((round, marks))
    return with_slider(fig, stops)


def counts(trace: Trace) -> Any:
    """Counts per class: a heat map of clients and classes, for one round at a time."""
    return heat_maps(trace, "class", lambda value: dict(enumerate(value)))


def mixture(trace: Trace) -> Any:
    """Shares of other clients' models: a heat map of clients and other clients, for one round at a time."""
    return heat_maps(
        trace, "model of client", lambda value: {int(other): share for other, share in value.items()}, trace.names.short
    )


def heat_maps(trace: Trace, across: str, cells: Any, column_name: Any = str) -> Any:
    import plotly.graph_objects as go

    fig = figure(heading(trace), across, "client")
    stops = []
    for round in thinned(sorted(trace.values), STOPS):
        rows = {client: cells(value) for client, value in list(trace.values[round].items())[:CLIENTS]}
        columns = sorted({column for row in rows.values() for column in row})
        z = [[row.get(column) for column in columns] for row in rows.values()]
        stops.append(
            (
                round,
                [
                    go.Heatmap(
                        x=[column_name(column) for column in columns],
                        y=[trace.names.short(client) for client in rows],
                        z=z,
                        colorscale=SCALE,
                    )
                ],
            )
        )
    fig.update_xaxes(type="category").update_yaxes(type="category")
    return with_slider(fig, stops)


def points(trace: Trace) -> Any:
    """Pairs of lists: one point per pair of elements, for one round at a time."""
    import plotly.graph_objects as go

    first = next(iter(trace.values[max(trace.values)].values()))
    fig = figure(heading(trace), *first)
    stops = []
    for round in thinned(sorted(trace.values), STOPS):
        x, y = pooled(trace.values[round])
        text = [
            trace.names.of(client) for client, value in trace.values[round].items() for _ in next(iter(value.values()))
        ]
        stops.append((round, [go.Scatter(x=x, y=y, text=text, mode="markers", marker={"size": 5, "opacity": 0.6})]))
    return with_slider(fig, stops).update_layout(hovermode="closest")


def against(trace: Trace) -> Any:
    """One panel per fact with one point per client. The title of a panel has the rank correlation."""
    from plotly.subplots import make_subplots

    columns = [[*zip(*pairs.values())] for pairs in trace.values.values()]
    titles = [f"{fact} ({correlation(*pair)})" for fact, pair in zip(trace.values, columns)]
    base = figure(f"{trace.part}: mean weight of a client against … (rank correlation)", "", "")
    fig = make_subplots(
        rows=1, cols=len(titles), shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.03, figure=base
    )
    for i, ((x, y), pairs) in enumerate(zip(columns, trace.values.values()), 1):
        text, marker = [trace.names.of(client) for client in pairs], {"color": COLOURS[0], "size": 6, "opacity": 0.7}
        fig.add_scatter(x=x, y=y, text=text, mode="markers", row=1, col=i, marker=marker)
    fig.update_layout(showlegend=False, hovermode="closest", margin={"t": 84})
    return fig.update_annotations(font_size=12)


DRAW = {
    "level": level, "quantiles": quantiles, "curve": curve, "counts": counts, "points": points, "mixture": mixture,
    "against": against,
}  # fmt: skip


# ---- helpers ---------------------------------------------------------------------------------------------------------


def heading(trace: Trace) -> str:
    return f"{trace.part}: {trace.style.title}"


def all_clients(values: NoteValues) -> list[Any]:
    return sorted({client for clients in values.values() for client in clients}, key=lambda c: -1 if c is None else c)


def thinned(rounds: list[int], most: int) -> list[int]:
    """At most `most` rounds, evenly spaced, with the first and the last."""
    if len(rounds) <= most:
        return rounds
    return [rounds[i * (len(rounds) - 1) // (most - 1)] for i in range(most)]


def abscissa(trace: Trace, round: int, length: int) -> list[float]:
    """The x values of a curve: the note that the style names, or 1, 2, …"""
    recorded = (trace.over or {}).get(round, {}).get(None)
    return recorded if recorded is not None else list(range(1, length + 1))


def two_rows(trace: Trace, below: str) -> Any:
    """A figure with two plots, one above the other. `below` is the y axis of the second."""
    from plotly.subplots import make_subplots

    fig = make_subplots(rows=2, cols=1, vertical_spacing=0.13, figure=figure(heading(trace), "", trace.name))
    fig.update_layout(height=640, margin={"t": 80}, legend={"y": 1.08, "x": 0.0, "traceorder": "reversed"})
    fig.update_xaxes(title="round")
    return fig.update_yaxes(title=below, row=2, col=1)


def banded(fig: Any, lines: dict[int, list[float]]) -> None:
    """Draw five quantile lines and fill the space between them."""
    for i, name in enumerate(QUANTILES):
        fig.add_scatter(
            x=[r + 1 for r in lines],
            y=[five[i] for five in lines.values()],
            name=name,
            mode=line_mode(lines),
            row=1,
            col=1,
            line={"color": COLOURS[0], "width": 2 if i == 2 else 0.5},
            fill="tonexty" if i else None,
            fillcolor=BANDS[i - 1] if i else None,
            marker={"size": 4},
        )


def with_slider(fig: Any, stops: list[tuple[int, list[Any]]]) -> Any:
    """Add the marks of every round. A slider chooses the round; the last one is shown first."""
    owner = [round for round, marks in stops for _ in marks]
    for round, marks in stops:
        for mark in marks:
            fig.add_trace(mark.update(visible=round == stops[-1][0]))
    if len(stops) > 1:
        steps = [
            {"label": str(round + 1), "method": "restyle", "args": [{"visible": [o == round for o in owner]}]}
            for round, _ in stops
        ]
        slider = {"active": len(stops) - 1, "currentvalue": {"prefix": "round "}, "pad": {"t": 30}, "steps": steps}
        fig.update_layout(sliders=[slider], height=500, margin={"t": 80}, legend={"y": 1.12, "x": 0.0})
    return fig
