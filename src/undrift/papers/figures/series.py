"""The numbers of a run that a figure draws: read from its record, or from the line of a results file that kept them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from undrift.evaluate import views
from undrift.papers.figures.kinds import Curves, Figure, Pictures, Source
from undrift.papers.values import KEPT_CURVES
from undrift.store.record import rows_of

Row = dict[str, Any]
Series = dict[str, Any]  # x and y; of a picture what was noted
DIGITS = 5  # of kept numbers: enough for a figure


def sources_in(figures: Sequence[Figure]) -> Iterator[Source]:
    """Everything of a run that the figures draw, each once."""
    seen = set[str]()
    for figure in figures:
        own = figure.sources if isinstance(figure, Curves) else (figure.source,) if isinstance(figure, Pictures) else ()
        for source in own:
            if source.key not in seen:
                seen.add(source.key)
                yield source


def kept_series(figures: Sequence[Figure], folder: Path) -> dict[str, Series]:
    """What the line of a results file keeps for the figures. The two curves that every line has are not kept twice."""

    def query(*asked: Any) -> list[tuple[Any, ...]]:
        return rows_of(folder, *asked)

    found = {source.key: read(source, query) for source in sources_in(figures) if source.key not in IN_EVERY_LINE}
    return {key: rounded(series) for key, series in found.items() if series}


IN_EVERY_LINE = {"/".join(place): name for place, name in KEPT_CURVES.items()}


def series_of(row: Row, source: Source) -> Series:
    """The series of a result; empty where it has none."""
    if source.key in row.get("series", {}):
        return dict(row["series"][source.key])
    kept = row.get(IN_EVERY_LINE.get(source.key, ""))
    if kept:
        return {"x": list(range(1, len(kept) + 1)), "y": kept}
    if "run" in row and "failed" not in row:
        return read(source, lambda *asked: rows_of(Path(row["run"]), *asked))
    return {}


def read(source: Source, query: views.Query) -> Series:
    """The series of a record. Rounds are counted from 1."""
    if source.note:
        return noted(source, query)
    curve = views.curve(query, source.stage, source.data, source.metric)
    if not len(curve):
        return {}
    values = curve.mean if source.below is None else views.share_below(curve, source.below)
    return {"x": (curve.rounds + 1).tolist(), "y": values.tolist()}


def noted(source: Source, query: views.Query) -> Series:
    """What a part noted: numbers as their mean over the clients of a round. Lists over another note, and whatever else is
    noted, are those of the last round."""
    values = views.notes(query, source.note)
    if not values:
        return {}
    last = [value for value in values[max(values)].values() if value is not None]
    if source.over:
        return {"x": along(source.over, query), "y": np.mean(last, axis=0).tolist()}
    if isinstance(last[0], dict):
        return pooled(last)
    by_round = {round: [v for v in clients.values() if v is not None] for round, clients in sorted(values.items())}
    means = {round + 1: float(np.mean(own)) for round, own in by_round.items() if own}
    return {"x": list(means), "y": list(means.values())}


def along(over: str | tuple[float, ...], query: views.Query) -> list[float]:
    """The x axis: given, or what the server noted in the last round."""
    if not isinstance(over, str):
        return list(over)
    values = views.notes(query, over)
    return list(next(iter(values[max(values)].values()))) if values else []


def pooled(values: Sequence[dict[str, Any]]) -> Series:
    """The noted dictionaries of all clients as one: lists one after another. That of the server as it is."""
    if len(values) == 1:
        return dict(values[0])
    return {key: [number for value in values for number in value[key]] for key in values[0]}


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return {key: rounded(item) for key, item in value.items()} if isinstance(value, dict) else value
