"""Figures of a diagnosis."""

from __future__ import annotations

from typing import Any

from undrift.advice.findings import Diagnosis
from undrift.report.plots import COLOURS, figure, label_bubbles

TITLES = {
    "label_skew": "label skew", "quantity_skew": "quantity skew", "feature_skew": "feature skew", "label_noise": "wrong labels",
    "drift": "drift",
}  # fmt: skip


def pictures(diagnosis: Diagnosis) -> list[tuple[str, Any]]:
    """(name, figure) of all that can be drawn: what was found, the labels of the clients, their wrong labels."""
    drawn = [("findings", overview(diagnosis))]
    by_name = {finding.name: finding for finding in diagnosis.findings}
    if counts := by_name["label_skew"].details.get("class_counts"):
        classes, clients = [str(c) for c in range(len(counts[0]))], [f"client {k}" for k in range(len(counts))]
        drawn.append(("labels", label_bubbles(counts, classes, clients)))
    if by_name["label_noise"].axis and (shares := by_name["label_noise"].details.get("by_client")):
        bars = figure("estimated share of wrong labels per client", "client", "share")
        bars.add_bar(x=list(shares), y=list(shares.values()))
        bars.update_layout(yaxis_range=[0, 1])
        drawn.append(("wrong labels", bars))
    return drawn


def overview(diagnosis: Diagnosis) -> Any:
    """How strong each finding is. At 1 remedies for it join the race."""
    found = [one for one in diagnosis.findings if one.name in TITLES]
    fig = figure("what was found", "strength (from 1 on, remedies for it are raced)", "")
    fig.add_bar(
        orientation="h", y=[TITLES[one.name] for one in found], x=[one.details.get("strength", 0) for one in found],
        marker_color=[COLOURS[2] if one.axis else COLOURS[0] for one in found],
        text=["cannot be measured" if one.value is None else f"{one.value:.2f}" for one in found], textposition="outside",
        cliponaxis=False, hovertext=[one.text for one in found], hoverinfo="text",
    )  # fmt: skip
    fig.add_vline(x=1, line_dash="dash", line_color=COLOURS[-1])
    fig.update_layout(yaxis_autorange="reversed", hovermode="closest", margin_r=120, height=300)
    return fig
