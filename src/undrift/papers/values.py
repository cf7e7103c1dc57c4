"""The numbers of a run that a table shows: a metric of a stage over a window of rounds.

A window is a share of the run, so that a shorter run averages the same share of its curve. A share that would be fewer than
five evaluated rounds is widened to five, because a curve that swings has no last value. Both are reported as reductions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undrift.core.headline import Headline
from undrift.evaluate import views
from undrift.store.record import rows_of

if TYPE_CHECKING:
    from undrift.papers.papers import Preset

LEAST = 5  # evaluated rounds in a window
AVERAGES, EXTREMES = ("mean", "std", "rolling_std"), ("lowest", "highest")
WITH_TARGET = ("rounds_until", "clients_until", "clients_below")
TAKES = (*AVERAGES, *EXTREMES, "correlation", *WITH_TARGET)

KEPT_CURVES = {("G", "global", "accuracy"): "curve", ("train", "train", "loss"): "training_loss"}  # in results files


@dataclass(frozen=True)
class Value:
    """A number of a run: what is taken of a metric of a stage (or of the sum of several, `flops+elementwise`) over a window of the
    evaluated rounds. With a `note` (AXIS.NAME,
    such as `personalize.gamma`) it is what parts noted instead of a metric, the mean over clients. A preset's values are
    those of its headline, unless they name something else (`value_of`).

    `window`: 0 (all), the last share (0.1), or (from, to) as shares of the run. `paper` is the paper's own window in words,
    where ours is another. Of a `take` with a target: `rounds_until` is the number of rounds until the mean reaches it (a run
    that never does counts one more than it has), `clients_until` the mean over clients likewise, and `clients_below` the
    share of the clients that are worse than it in the window (1 − ρ_ε); `better` says which way that is. `lowest` and
    `highest` are over rounds and clients. `correlation` is Spearman's over clients, of their means over the window, with
    `against`: STAGE/DATA/METRIC or AXIS.NAME."""

    name: str = "G"
    stage: str = "G"
    data: str = "global"
    metric: str = "accuracy"
    window: float | tuple[float, float] = 0.1
    take: str = "mean"
    factor: float = 100.0
    better: str = "higher"
    target: float | None = None
    neighbours: int = 10  # rounds in a rolling deviation
    paper: str | None = None
    note: str = ""
    against: str = ""
    client: int | None = None  # of this client alone

    def __post_init__(self) -> None:
        if isinstance(self.window, list):
            object.__setattr__(self, "window", tuple(self.window))
        start, end = self.span
        if not 0 <= start < end <= 1:
            raise ValueError(f"{self.name}: a window is a share of the run, not {self.window}")
        if self.take not in TAKES:
            raise ValueError(f"{self.name}: take must be one of {', '.join(TAKES)}, not {self.take!r}")
        if (self.target is None) != (self.take not in WITH_TARGET):
            raise ValueError(f"{self.name}: {', '.join(WITH_TARGET)} need a target, the others have none")
        if bool(self.against) != (self.take == "correlation"):
            raise ValueError(f"{self.name}: a correlation says what it is against, the others do not")
        if self.better not in ("higher", "lower"):
            raise ValueError(f"{self.name}: better must be higher or lower, not {self.better!r}")

    @property
    def span(self) -> tuple[float, float]:
        """From where to where, as shares of the run."""
        if isinstance(self.window, tuple):
            return self.window
        return (1 - self.window, 1.0) if self.window else (0.0, 1.0)

    @property
    def sign(self) -> int:
        """Multiply a number of the metric by it, and larger is better."""
        return -1 if self.better == "lower" else 1

    def kept_curve(self, headline: Headline) -> str | None:
        """The curve of a results file that is enough to compute it; None if there is no such curve."""
        of_clients = self.take.startswith("clients") or self.take == "correlation" or self.client is not None
        curves = {**KEPT_CURVES, ("G", "global", headline.name): "curve"}
        return None if self.note or of_clients else curves.get((self.stage, self.data, self.metric))

    def rounds(self, count: int) -> slice:
        """The window in a run of so many evaluated rounds; at least five of them, or all."""
        start, end = self.span
        width = min(count, max(round(count * (end - start)), min(LEAST, count)))
        first = count - width if end == 1 else min(round(count * start), count - width)
        return slice(first, first + width)

    def widened(self, count: int) -> int | None:
        """The number of rounds of a window that its share alone would not have; None for a window as it should be."""
        start, end = self.span
        window = self.rounds(count)
        width = window.stop - window.start
        return width if width > max(1, round(count * (end - start))) and self.take in AVERAGES else None


def value_of(item: Mapping[str, Any], headline: Headline) -> Value:
    """A value as a preset writes it. Without a metric it is the headline, in the units that tables show."""
    own = {"metric": headline.name, "factor": float(headline.factor), "better": headline.better}
    named = "note" in item or item.get("metric", headline.name) != headline.name
    return Value(**{**({} if named else own), **item})


def measured(query: views.Query, value: Value) -> list[float] | None:
    """[the number, its std over the window] of a run, in the units of the record; None if it was never evaluated."""
    curve = curve_named(query, value.note or f"{value.stage}/{value.data}/{value.metric}")
    if value.client is not None:
        curve = of_client(curve, value.client)
    if not len(curve):
        return None
    if value.take == "correlation":
        return correlation(curve, curve_named(query, value.against), value)
    if value.take in EXTREMES:
        window = curve.values[value.rounds(len(curve))]
        return [float(np.nanmin(window) if value.take == "lowest" else np.nanmax(window)), 0.0]
    if value.take == "clients_until":
        return [clients_until(curve, float(value.target or 0), value.sign), 0.0]
    if value.take == "clients_below":
        below = views.share_below(curve, float(value.target or 0), value.sign < 0)[value.rounds(len(curve))]
        return [float(below.mean()), float(below.std())]
    return of_curve(curve.mean, value, curve.rounds.tolist())


def with_values(preset: Preset, row: dict[str, Any]) -> dict[str, Any]:
    """The row with the numbers that the preset asks for."""
    if "failed" in row:
        return {**row, "values": {}}
    folder = Path(row["run"])
    values = {value.name: measured(lambda *q: rows_of(folder, *q), value) for value in preset.values}
    return {**row, "values": {name: pair for name, pair in values.items() if pair is not None}}


def of_curve(
    values: Sequence[float] | np.ndarray, value: Value, rounds: Sequence[int] | None = None
) -> list[float] | None:
    """The same from a curve alone. `rounds`: the numbers of its rounds, if not every one was evaluated."""
    if not len(values):
        return None
    window = np.asarray(values, dtype=float)[value.rounds(len(values))]
    if value.take == "rounds_until":
        numbers = list(rounds) if rounds is not None else list(range(len(values)))
        reached = views.rounds_until(numbers, value.sign * np.asarray(values), value.sign * float(value.target or 0))
        return [float(numbers[-1] + 2 if reached is None else reached), 0.0]
    if value.take == "rolling_std":
        rolling = views.rolling_std(window, value.neighbours)
        return [float(rolling.mean()), float(rolling.std())] if len(rolling) else None
    if value.take in EXTREMES:
        return [float(window.min() if value.take == "lowest" else window.max()), 0.0]
    mean, std = float(window.mean()), float(window.std())
    return [mean, std] if value.take == "mean" else [std, 0.0]


def clients_until(curve: views.Curve, target: float, sign: int = 1) -> float:
    """Mean number of rounds until a client reaches the target; who never does counts one more than the run has."""
    last = int(curve.rounds[-1]) + 2
    columns = [column for column in curve.values.T if not np.isnan(column).all()]
    each = [views.rounds_until(curve.rounds.tolist(), sign * column, sign * target) for column in columns]
    return float(np.mean([last if rounds is None else rounds for rounds in each])) if each else math.nan


def of_client(curve: views.Curve, client: int) -> views.Curve:
    """The curve of one client, in the rounds in which it was evaluated."""
    own = [number for number, known in enumerate(curve.clients) if known == client]
    if not own:
        return views.Curve(curve.rounds[:0], (), curve.values[:0])
    there = ~np.isnan(curve.values[:, own[0]])
    return views.Curve(curve.rounds[there], (client,), curve.values[there][:, own])


def curve_named(query: views.Query, name: str) -> views.Curve:
    """A metric by STAGE/DATA/METRIC, the sum of several (METRIC+METRIC), or a note by AXIS.NAME."""
    if "/" not in name:
        return views.noted(query, name)
    stage, data, metrics = name.split("/")
    first, *others = [views.curve(query, stage, data, metric) for metric in metrics.split("+")]
    return replace(first, values=sum((other.values for other in others), first.values))


def correlation(one: views.Curve, other: views.Curve, value: Value) -> list[float] | None:
    """Spearman's rank correlation over the clients that both have; None where one of the two is the same for all."""
    from scipy.stats import spearmanr

    means = []
    for curve in (one, other):
        window = curve.values[value.rounds(len(curve))]
        known = [(client, column[~np.isnan(column)]) for client, column in zip(curve.clients, window.T)]
        means.append({client: own.mean() for client, own in known if client is not None and len(own)})
    both = sorted(means[0].keys() & means[1].keys())
    x, y = ([own[client] for client in both] for own in means)
    if len(set(x)) < 2 or len(set(y)) < 2:
        return None
    return [float(spearmanr(x, y).statistic), 0.0]
