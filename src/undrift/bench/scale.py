"""How long a round takes on a cluster: what was measured on one actor, and a formula.

    T = server + max( Σ (c·s_k + o) / W,  slow · (c·max s_k + o),  m · o ) + carried / bandwidth

s_k   seconds of client k's own work;  o  seconds of an order beside it (packing, sending, storing, answering)
c     how much slower a core is while as many workers share the machine (caches, memory, clock); 1 for one alone
W     cores that work: over all machines, the smaller of its actors and its cores;  slow = actors per core, at least 1
m·o   the driver hands out and takes in one order after the other: where this is the largest, more nodes do not help
carried   bytes over the network: the common ones once per other node, what differs with every order and reply
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
    seconds: float
    mapped: float  # of which the engine had the orders
    clients: tuple[float, ...]  # seconds of every client's own work

    @property
    def server(self) -> float:
        return self.seconds - self.mapped

    @property
    def order(self) -> float:
        """Of a round on one actor: what an order costs beside the client's work."""
        return max(self.mapped - sum(self.clients), 0.0) / len(self.clients)


def time_in_turns(several: Sequence[UndriftLoop], count: int = 5) -> list[list[RoundTime]]:
    """One round of each, without evaluation, `count` times: a machine that is slower for a while is slower for all."""
    found = [[time_round(ours) for ours in several] for _ in range(count + 1)]
    return found[1:]  # once for nothing


def time_round(ours: UndriftLoop) -> RoundTime:
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
    """A work to hold the model against: 24 equal clients of some 60 ms, so that clients' work dominates; the model is
    about sums and cores, not about a scheduler's mood."""
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((2400, 784), dtype=np.float32), draw.integers(0, 10, 2400)
    return Work("a", "mlp", 24, 25, x, y, np.split(np.arange(2400), 24), epochs=12)


def predict(
    alone: RoundTime, machines: Sequence[tuple[int, int]], crowded: float = 1.0, carried: float = 0.0, bandwidth: float = math.inf
) -> float:  # fmt: skip
    """Seconds of the round that one actor did `alone`, on machines of (actors, cores)."""
    s, o = [crowded * second for second in alone.clients], alone.order
    width = sum(min(actors, cores) for actors, cores in machines)
    slow = max(max(actors / cores, 1.0) for actors, cores in machines)
    work = max((sum(s) + len(s) * o) / width, slow * (max(s) + o), len(s) * o)
    return alone.server + work + carried / bandwidth


@dataclass(frozen=True)
class PredictionCheck:
    """The model against the clock: medians over turns."""

    seconds: float
    predicted: float
    crowded: float
    ratio: float  # predicted over measured, turn by turn


def check_predictions(clusters: Sequence[UndriftLoop], cores: int, count: int = 5) -> list[PredictionCheck]:
    """What one actor took (the first of `clusters`) predicts the others, which have 2, 3, … actors on this machine. How
    crowded it is with so many workers is measured beside them, on worker processes without a cluster."""
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
    held = []
    for rows in found:
        seconds, predicted, crowded = (float(value) for value in np.median(rows, axis=0))
        held.append(PredictionCheck(seconds, predicted, crowded, float(np.median([row[1] / row[0] for row in rows]))))
    return held
