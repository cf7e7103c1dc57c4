"""How long a round takes on a cluster: what was measured on one actor, and a formula.

    T = server + max( Σ (s_k + o) / W,  slow · (max s_k + o),  m · o ) + carried / bandwidth

s_k   seconds of client k's own work;  o  seconds of an order beside it (packing, sending, storing, answering)
W     cores that work: over all machines, the smaller of its actors and its cores;  slow = actors per core, at least 1
m·o   the driver hands out and takes in one order after the other: where this is the largest, more nodes do not help
carried   bytes over the network: the common ones once per other node, what differs with every order and reply
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undrift.bench.bare import Work
from undrift.bench.measure import Ours


@dataclass(frozen=True)
class Round:
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


def observed(ours: Ours, rounds: int = 4) -> Round:
    """The fastest of some rounds, without evaluation: whatever else the machine does only ever adds."""
    mapped, clients, inner = 0.0, tuple[float, ...](), ours.engine.map

    def timed(orders: Sequence[Any]) -> Any:
        nonlocal mapped, clients
        began = time.perf_counter()
        replies = inner(orders)
        mapped, clients = time.perf_counter() - began, tuple(reply.seconds for reply in replies)
        return replies

    setattr(ours.engine, "map", timed)  # noqa: B010 - a method, for mypy
    ours.round()  # once for nothing
    found = []
    for _ in range(rounds):
        seconds = ours.round()
        found.append(Round(seconds, mapped, clients))
    setattr(ours.engine, "map", inner)  # noqa: B010
    return min(found, key=lambda round: round.seconds)


def steady() -> Work:
    """A work to hold the model against: 48 equal clients of some 50 ms, so that clients' work dominates and the last one
    to finish matters little; the model is about sums and cores, not about a scheduler's mood."""
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((4800, 784), dtype=np.float32), draw.integers(0, 10, 4800)
    return Work("a", "mlp", 48, 25, x, y, np.split(np.arange(4800), 48), epochs=20)


def predict(
    alone: Round, machines: Sequence[tuple[int, int]], carried: float = 0.0, bandwidth: float = float("inf")
) -> float:
    """Seconds of the round that one actor did `alone`, on machines of (actors, cores)."""
    s, o = alone.clients, alone.order
    width = sum(min(actors, cores) for actors, cores in machines)
    slow = max(max(actors / cores, 1.0) for actors, cores in machines)
    work = max((sum(s) + len(s) * o) / width, slow * (max(s) + o), len(s) * o)
    return alone.server + work + carried / bandwidth
