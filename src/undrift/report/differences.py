"""Paired differences with their intervals, as seeds are added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from undrift.report.plots import figure, style


def shrinking(
    differences: Sequence[tuple[str, int, Sequence[tuple[int, float, float, float]]]],
    percent: bool = True,
    title: str = "difference to the leading method",
    x_title: str = "seeds",
) -> Any:
    """Paired differences with their intervals as seeds are added: (name, number of the method, (seeds, mean, low, high) …).
    An interval that is infinite is not drawn."""
    fig = figure(f"{title}{', in points' * percent}, with its interval", x_title, "difference")
    for place, (name, number, steps) in enumerate(differences):
        x = [seeds + 0.06 * (place - (len(differences) - 1) / 2) for seeds, *_ in steps]  # side by side
        fig.add_scatter(
            x=x, y=[mean for _, mean, _, _ in steps], name=name, mode="lines+markers", line=style(number),
            error_y={
                "type": "data", "symmetric": False, "array": [bar(high - mean) for _, mean, _, high in steps],
                "arrayminus": [bar(mean - low) for _, mean, low, _ in steps], "width": 4, "thickness": 1.2,
            },
        )  # fmt: skip
    fig.add_hline(y=0, line_width=1)
    fig.update_layout(hovermode="closest")
    fig.update_xaxes(dtick=1)
    # Two seeds have an interval of hundreds of points: it may leave the figure, so that the last ones can be read.
    last = [end for _, _, steps in differences for end in steps[-1][2:] if math.isfinite(end)]
    low, high = (
        choose([0.0, *last, *(step[1] for _, _, steps in differences for step in steps)]) for choose in (min, max)
    )
    if last and high > low:
        fig.update_yaxes(range=[low - (high - low) / 2, high + (high - low) / 2])
    return fig


def bar(length: float) -> float | None:
    return length if math.isfinite(length) else None
