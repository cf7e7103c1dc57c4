"""Predict how long a round takes on a cluster, from a round measured on one actor.

    T = server + max( Σ (c·s_k + o) / W,  slow · (c·max s_k + o),  m · o ) + carried / bandwidth

s_k   seconds of client k's own work;  o  seconds of an order beside it (pack, send, store, reply)
c     how much slower a core is with this many workers on the machine (caches, memory, clock); 1 for one worker
W     working cores: the sum over machines of min(actors, cores);  slow = actors per core, at least 1
m·o   the driver handles one order after another: if this is the largest term, more nodes do not help
carried   bytes over the network: common ones once per other node, the others with every order and reply
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undrift.bench.bare import Work
from undrift.bench.measure import UndriftLoop


@dataclass(frozen=True)
class RoundTime:
    """How long one round took, and where."""

    seconds: float
    mapped: float  # of which the engine worked on the orders
    clients: tuple[float, ...]  # seconds of every client's own work

    @property
    def server(self) -> float:
        return self.seconds - self.mapped

    @property
    def order(self) -> float:
        """Seconds of an order beside the client's work. Only for a round on one actor."""
        return max(self.mapped - sum(self.clients), 0.0) / len(self.clients)


def time_in_turns(several: Sequence[UndriftLoop], count: int = 5) -> list[list[RoundTime]]:
    """Time one round of each, without evaluation, `count` times in turn: a slow phase of the machine then hits all."""
    found = [[time_round(ours) for ours in several] for _ in range(count + 1)]
    return found[1:]  # the first turn warms up


def time_round(ours: UndriftLoop) -> RoundTime:
    """Run one round with a timer around the engine's `map`."""
    mapped, clients, inner = 0.0, tuple[float, ...](), ours.engine.map

    def map(orders: Sequence[Any]) -> Any:
        nonlocal mapped, clients
        began = time.perf_counter()
        replies = inner(orders)
        mapped, clients = time.perf_counter() - began, tuple(reply.seconds for reply in replies)
        return replies

    setattr(ours.engine, "map", map)  # noqa: B010 - a method, for mypy
    try:
        return RoundTime(ours.round(), mapped, clients)
    finally:
        setattr(ours.engine, "map", inner)  # noqa: B010


def steady_work() -> Work:
    """A workload to test the prediction on: 24 equal clients of about 60 ms each. Their work dominates, so that the
    scheduler's randomness matters little."""
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((2400, 784), dtype=np.float32), draw.integers(0, 10, 2400)
    return Work("a", "mlp", 24, 25, x, y, np.split(np.arange(2400), 24), epochs=12)


def predict(
    alone: RoundTime,
    machines: Sequence[tuple[int, int]],
    crowded: float = 1.0,
    carried: float = 0.0,
    bandwidth: float = math.inf,
) -> float:
    """Expected seconds on machines of (actors, cores) for the round that one actor did `alone`."""
    s, o = [crowded * second for second in alone.clients], alone.order
    width = sum(min(actors, cores) for actors, cores in machines)
    slow = max(max(actors / cores, 1.0) for actors, cores in machines)
    work = max((sum(s) + len(s) * o) / width, slow * (max(s) + o), len(s) * o)
    return alone.server + work + carried / bandwidth


@dataclass(frozen=True)
class PredictionCheck:
    """Predicted and measured seconds of a round: medians over turns."""

    seconds: float
    predicted: float
    crowded: float
    ratio: float  # predicted over measured, the median of the turns' ratios


def check_predictions(clusters: Sequence[UndriftLoop], cores: int, count: int = 5) -> list[PredictionCheck]:
    """Predict rounds of clusters with 1, 2, 3, … actors on this machine from the first one, and compare with the clock.
    How much slower a core is with that many workers is measured in the same turns, on worker processes without Ray."""
    plain = [UndriftLoop(steady_work(), workers) for workers in range(1, len(clusters) + 1)]
    found: list[list[tuple[float, float, float]]] = [[] for _ in clusters]
    try:
        for turn in time_in_turns([*clusters, *plain], count):
            ours, bare = turn[: len(clusters)], turn[len(clusters) :]
            for number, (one, beside) in enumerate(zip(ours, bare, strict=True)):
                workers = number + 1
                crowded = beside.mapped * min(workers, cores) / bare[0].mapped
                found[number].append((one.seconds, predict(ours[0], [(workers, cores)], crowded), crowded))
    finally:
        for worker in plain:
            worker.close()
    checks = []
    for rows in found:
        seconds, predicted, crowded = (float(value) for value in np.median(rows, axis=0))
        checks.append(PredictionCheck(seconds, predicted, crowded, float(np.median([row[1] / row[0] for row in rows]))))
    return checks
