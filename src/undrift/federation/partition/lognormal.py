"""Lognormal sizes with Dirichlet labels, as FedDyn's code draws them (Acar et al., ICLR 2021).

    sizes ∝ lognormal(ln(n/N), σ), summing to n;   class prior p_k ~ Dir(α·1_C)
    while samples are left:  a client that is not full, uniformly;  a class from its prior over the classes that are
                             left;  the next sample of that class

Late clients are forced away from their prior, because their preferred classes are used up. If less than 1e-9 of a prior
is left, the class is drawn uniformly, and the record counts this. Sizes below `least` are lifted at the cost of the
largest client.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from undrift.core.errors import BadRequest
from undrift.federation.partition._common import (
    DealtShards,
    checked,
    class_sizes,
    deal,
    positive,
    shuffled_classes,
    whole,
)
from undrift.federation.partition._fit import dirichlet_rows

SPENT = 1e-9
LARGEST_SIGMA = 50.0  # sizes of e^±50 already leave all samples to one client


@dataclass(frozen=True)
class Lognormal:
    sigma: float
    alpha: float
    least: int = 10

    def __post_init__(self) -> None:
        positive("lognormal", "sigma", self.sigma)
        if self.sigma > LARGEST_SIGMA:
            raise BadRequest(
                f"sigma of lognormal must be at most {LARGEST_SIGMA:g}, not {self.sigma:g}: one client would get all samples"
            )
        positive("lognormal", "alpha", self.alpha)
        whole("lognormal", "least", self.least)

    def __call__(
        self, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None = None
    ) -> DealtShards:
        labels = checked(labels, clients, self.least)
        columns = class_sizes(labels)
        sizes, lifted = self._sizes(len(labels), clients, stream)
        priors = dirichlet_rows(self.alpha, clients, len(columns), stream)
        counts, uniform = _fill(sizes, priors, columns, stream)
        record: dict[str, object] = {"lifted": lifted} if lifted else {}
        if uniform:
            record["uniform_draws"] = uniform
        return DealtShards(deal(counts, shuffled_classes(labels, stream)), record)

    def _sizes(self, n: int, clients: int, stream: np.random.Generator) -> tuple[np.ndarray, int]:
        drawn = stream.lognormal(np.log(n / clients), self.sigma, clients)
        sizes = np.floor(drawn / drawn.sum() * n).astype(np.int64)
        rest = n - int(sizes.sum())
        sizes[int(np.argmax(sizes > rest))] += rest
        poor = np.flatnonzero(sizes < self.least)
        for client in poor:
            while sizes[client] < self.least:
                giver = int(sizes.argmax())
                # Give what is lacking, but the giver stays at least as large as the second largest.
                second = int(np.partition(sizes, -2)[-2]) if clients > 1 else 0
                gives = min(self.least - int(sizes[client]), max(1, int(sizes[giver]) - second))
                sizes[giver] -= gives
                sizes[client] += gives
        return sizes, len(poor)


def _fill(
    sizes: np.ndarray, priors: np.ndarray, columns: np.ndarray, stream: np.random.Generator
) -> tuple[np.ndarray, int]:
    """The sequential deal, in plain Python numbers: one bisection per sample."""
    counts = np.zeros(priors.shape, dtype=np.int64)
    room, left = sizes.tolist(), columns.tolist()
    open_clients = [k for k, free in enumerate(room) if free]
    cumulative, spent = _cumulative(priors, left)
    uniform = 0
    for pick, draw in stream.random((int(columns.sum()), 2)).tolist():
        place = int(pick * len(open_clients))
        client = open_clients[place]
        steps = cumulative[client]
        label = min(bisect_right(steps, draw * steps[-1]), len(left) - 1)
        uniform += client in spent
        counts[client, label] += 1
        left[label] -= 1
        room[client] -= 1
        if not room[client]:  # a full client leaves the list: the same distribution as drawing again
            open_clients[place] = open_clients[-1]
            open_clients.pop()
        if not left[label]:
            cumulative, spent = _cumulative(priors, left)
    return counts, uniform


def _cumulative(priors: np.ndarray, left: list[int]) -> tuple[list[list[float]], set[int]]:
    """Every client's cumulative prior over the classes that are left, and the clients with less than 1e-9 of it."""
    remaining = priors * (np.array(left) > 0)
    spent = np.flatnonzero(remaining.sum(1) < SPENT)
    remaining[spent] = np.array(left) > 0
    return np.cumsum(remaining, axis=1).tolist(), set(spent.tolist())
