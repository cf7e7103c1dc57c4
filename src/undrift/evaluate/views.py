"""Every published protocol as a view over recorded rows: papers report the last round, the last ten or fifty, all of them, or
when a threshold was first reached. Nothing here is measured again; each function takes a curve (one value per recorded
round, in order) and can be checked with pencil and numpy.

Standard deviations over rounds and clients are of the whole set (divided by n), those over seeds are of a sample (n − 1).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undrift.store.record import headline_of

Query = Callable[..., list[tuple[Any, ...]]]  # (SQL, values) -> rows of run.sqlite
Values = Sequence[float] | np.ndarray
WINDOW, WITHIN = 10, 0.01


@dataclass(frozen=True)
class Curve:
    """A metric over the rounds: one row per evaluated round, one column per client (one column for the global model). What
    was not evaluated is NaN."""

    rounds: np.ndarray  # numbers of the rounds, from 0
    clients: tuple[int | None, ...]
    values: np.ndarray  # rounds × clients

    @property
    def mean(self) -> np.ndarray:
        """Over the clients evaluated in a round."""
        return np.array([np.mean(row[~np.isnan(row)]) if not np.isnan(row).all() else math.nan for row in self.values])

    @property
    def std(self) -> np.ndarray:
        return np.array([np.std(row[~np.isnan(row)]) if not np.isnan(row).all() else math.nan for row in self.values])

    def __len__(self) -> int:
        return len(self.rounds)


def curve(query: Query, stage: str = "G", data: str = "global", metric: str = "accuracy") -> Curve:
    """A metric of a stage on some data, out of a run's record."""
    found = query(
        "SELECT round, client, value FROM metrics WHERE stage=? AND data=? AND metric=? ORDER BY round, client",
        (stage, data, metric),
    )
    return as_curve(found)


def as_curve(found: Sequence[tuple[int, int | None, float | None]]) -> Curve:
    """The curve of rows (round, client, value)."""
    rounds = sorted({row[0] for row in found})
    clients = sorted({row[1] for row in found}, key=lambda client: -1 if client is None else client)
    values = np.full((len(rounds), len(clients)), np.nan)
    across, along = ({key: i for i, key in enumerate(keys)} for keys in (rounds, clients))
    for round, client, value in found:
        values[across[round], along[client]] = math.nan if value is None else value
    return Curve(np.array(rounds, dtype=int), tuple(clients), values)


def notes(query: Query, name: str) -> dict[int, dict[int | None, Any]]:
    """What parts of an axis noted under a name, such as `personalize.gamma`: {round: {client: value}}; None is the server."""
    axis, _, own = name.partition(".")
    found: dict[int, dict[int | None, Any]] = {}
    for round, client, value in query(
        "SELECT round, client, value FROM notes WHERE part LIKE ? AND name=? ORDER BY rowid", (f"{axis}.%", own)
    ):
        found.setdefault(round, {})[client] = json.loads(value)
    return found


def noted(query: Query, name: str) -> Curve:
    """A number that parts of an axis noted, as a curve."""
    values = notes(query, name)
    return as_curve([(round, client, value) for round, own in values.items() for client, value in own.items()])


@dataclass(frozen=True)
class MeanStd:
    mean: float
    std: float
    count: int

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f} ± {100 * self.std:.2f}"


def last(values: Values, count: int) -> MeanStd:
    """The last `count` rounds, or as many as there are."""
    some = np.asarray(values, dtype=float)[-count:]
    return MeanStd(float(some.mean()), float(some.std()), len(some)) if len(some) else MeanStd(math.nan, math.nan, 0)


def all_rounds(values: Values) -> MeanStd:
    return last(values, max(1, len(values)))


def rolling_std(values: Values, window: int = WINDOW) -> np.ndarray:
    """The std of every `window` neighbouring rounds, by the last of them; empty where there are fewer."""
    some = np.asarray(values, dtype=float)
    if len(some) < window:
        return np.empty(0)
    return np.lib.stride_tricks.sliding_window_view(some, window).std(axis=1)


def converged_at(values: Values, window: int = WINDOW, within: float = WITHIN) -> int | None:
    """The first position from which the mean of every window of rounds stays within `within` of the last window's."""
    some = np.asarray(values, dtype=float)
    if len(some) < window:
        return None
    means = np.lib.stride_tricks.sliding_window_view(some, window).mean(axis=1)
    away = np.flatnonzero(~(np.abs(means - means[-1]) <= within))
    return int(away[-1]) + 1 if len(away) else 0


def std_after_convergence(values: Values, window: int = WINDOW, within: float = WITHIN) -> tuple[int, float] | None:
    """(position, std from there on); None for a run shorter than the window."""
    start = converged_at(values, window, within)
    return None if start is None else (start, float(np.std(np.asarray(values, dtype=float)[start:])))


def rounds_until(rounds: Sequence[int], values: Values, epsilon: float) -> int | None:
    """How many rounds it took to reach ε for the first time (among the evaluated ones); None: never."""
    reached = np.flatnonzero(np.asarray(values, dtype=float) >= epsilon)
    return int(rounds[int(reached[0])]) + 1 if len(reached) else None


def clients_rounds_until(curve: Curve, epsilon: float) -> tuple[float | None, int]:
    """(mean number of rounds over the clients that reach ε, how many never do)."""
    each = [rounds_until(curve.rounds.tolist(), column, epsilon) for column in curve.values.T]
    reached = [rounds for rounds in each if rounds is not None]
    return (float(np.mean(reached)) if reached else None), len(each) - len(reached)


def share_below(curve: Curve, epsilon: float, lower: bool = False) -> np.ndarray:
    """Per round the share of the evaluated clients whose value is worse than ε: below it, or above it where lower values
    are better."""
    evaluated = ~np.isnan(curve.values)
    worse = curve.values > epsilon if lower else curve.values < epsilon  # a comparison with NaN is false
    return worse.sum(1) / np.maximum(evaluated.sum(1), 1)


def over_seeds(values: Values) -> MeanStd:
    """Mean and sample std of one number per seed; the std of a single seed is 0 and says nothing."""
    some = np.asarray(values, dtype=float)
    return MeanStd(float(some.mean()), float(some.std(ddof=1)) if len(some) > 1 else 0.0, len(some))


def protocols(query: Query, thresholds: Sequence[float]) -> list[list[str]]:
    """The views of a run as a table: header and lines, for `undrift show`."""
    headline = headline_of(query)
    table = [["protocol", "G", f"L1 {headline.title}(L)", f"L2 {headline.title}(L)"]]
    curves = [curve(query, *place, headline.name) for place in (("G", "global"), ("L1", "own"), ("L2", "own"))]

    sign = headline.sign

    def shown(found: MeanStd) -> str:
        return f"{headline.show(found.mean)} ± {headline.show(found.std)}"

    def line(name: str, cell: Callable[[Curve], str]) -> None:
        table.append([name, *(cell(one) if len(one) else "—" for one in curves)])

    def converged(one: Curve) -> str:
        found = std_after_convergence(one.mean)
        return "—" if found is None else f"{headline.show(found[1])} from round {one.rounds[found[0]] + 1}"

    def until(epsilon: float) -> Callable[[Curve], str]:
        return lambda one: str(rounds_until(one.rounds.tolist(), sign * one.mean, sign * epsilon) or "—")

    def lasting(count: int) -> Callable[[Curve], str]:
        return lambda one: f"{shown(last(one.mean, count))}" + (f" ({len(one)} only)" if len(one) < count else "")

    line("last 50 evaluated rounds", lasting(50))
    line("last 10 evaluated rounds", lasting(10))
    line("all evaluated rounds", lambda one: shown(all_rounds(one.mean)))
    line(
        f"largest std of {WINDOW} neighbours",
        lambda one: headline.show(float(rolling_std(one.mean).max())) if len(one) >= WINDOW else "—",
    )
    if headline.percent:  # in units of the targets nobody knows what is close
        line(f"std once {WINDOW}-round means stay within {WITHIN:g}", converged)
    for epsilon in thresholds:
        line(f"rounds until {epsilon:g}", until(epsilon))
    return table
