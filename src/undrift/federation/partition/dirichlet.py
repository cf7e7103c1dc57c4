"""Dirichlet label skew, the recipe of NIID-Bench (Li et al., ICDE 2022), and FedDF's form of it.

    for each class c:   q ~ Dir(β·1_N);   q_k = 0 for clients that already hold n/N samples or more;
                        q ← q/Σq;   cut the shuffled class at ⌊cumsum(q)·n_c⌋
    repeat all of it until every client has at least `least` samples

The mask (`balance`) matters: it caps the sizes. The trap is the "until": at 500 clients and β = 0.1 none of 3000 draws
passes. So after 1000 draws the last one is kept and *repaired* (clients below `least` take random samples from the
largest), and the record says so. `recipe="feddf"` (Lin et al., NeurIPS 2020) deals in groups of ten clients, each on an
equal share of the data, until the smallest client of a group has half the mean. So the sizes stay close.

`numpy_seed` draws from numpy's legacy RandomState exactly as the published scripts do (shuffle, then dirichlet, class
by class, attempt by attempt), so it repeats published partitions sample by sample. A RandomState continues its stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from undrift.core.errors import BadRequest
from undrift.federation.partition._common import (
    DealtShards,
    checked,
    class_sizes,
    deal,
    one_of,
    positive,
    repair,
    shuffled_classes,
    whole,
)

ATTEMPTS = 1000
REDRAWS = 100
GROUP = 10

Drawer = np.random.Generator | np.random.RandomState


@dataclass(frozen=True)
class Dirichlet:
    beta: float
    balance: bool = True
    least: int = 10
    recipe: str = "niid-bench"
    numpy_seed: int | np.random.RandomState | None = None

    def __post_init__(self) -> None:
        positive("dirichlet", "beta", self.beta)
        whole("dirichlet", "least", self.least)
        one_of("dirichlet", "recipe", self.recipe, ("niid-bench", "feddf"))
        if self.numpy_seed is not None and not isinstance(self.numpy_seed, np.random.RandomState):
            whole("dirichlet", "numpy_seed", self.numpy_seed, least=0)
        if self.numpy_seed is not None and self.recipe == "feddf":
            raise BadRequest(
                "numpy_seed of dirichlet repeats NIID-Bench's stream, which recipe='feddf' does not use; drop one"
            )

    def __call__(
        self, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None = None
    ) -> DealtShards:
        labels = checked(labels, clients, self.least)
        if self.recipe == "feddf":
            return self._in_groups(labels, clients, stream)
        if self.numpy_seed is None:
            return self._draw(labels, clients, stream)
        legacy = self.numpy_seed
        if not isinstance(legacy, np.random.RandomState):
            legacy = np.random.RandomState(legacy)
        return self._draw(labels, clients, legacy)

    def _draw(self, labels: np.ndarray, clients: int, drawer: Drawer) -> DealtShards:
        sizes = class_sizes(labels)
        legacy = isinstance(drawer, np.random.RandomState)
        classes = [np.flatnonzero(labels == c) for c in range(len(sizes))] if legacy else []
        draws = 0
        while draws < ATTEMPTS:
            draws += 1
            lists = [indices.copy() for indices in classes]
            counts = self._counts(sizes, clients, drawer, lists)
            if counts.sum(1).min() >= self.least:
                break
        record: dict[str, object] = {"draws": draws}
        if counts.sum(1).min() < self.least:
            # The scripts have no repair. It draws from a Generator that is seeded by the legacy stream.
            stream = drawer if isinstance(drawer, np.random.Generator) else np.random.default_rng(drawer.randint(2**31))
            record["repaired"] = repair(counts, self.least, stream)
        by_class = shuffled_classes(labels, drawer) if isinstance(drawer, np.random.Generator) else lists
        return DealtShards(deal(counts, by_class), record)

    def _counts(self, sizes: np.ndarray, clients: int, drawer: Drawer, lists: list[np.ndarray]) -> np.ndarray:
        """One attempt. With `lists` (the legacy stream) each class is shuffled first, as the scripts do."""
        counts = np.zeros((clients, len(sizes)), dtype=np.int64)
        held = np.zeros(clients, dtype=np.int64)
        full = sizes.sum() / clients
        concentration = np.repeat(float(self.beta), clients)
        for c, size in enumerate(sizes):
            if lists:
                drawer.shuffle(lists[c])
            open_to = held < full if self.balance else np.ones(clients, dtype=bool)
            shares = _shares(drawer, concentration, open_to)
            cuts = (np.cumsum(shares) * size).astype(np.int64)[:-1]
            counts[:, c] = np.diff(cuts, prepend=0, append=size)
            held += counts[:, c]
        return counts

    def _in_groups(self, labels: np.ndarray, clients: int, stream: np.random.Generator) -> DealtShards:
        order = stream.permutation(len(labels))
        firsts = range(0, clients, GROUP)
        cuts = [len(labels) * first // clients for first in firsts][1:]
        shards: list[np.ndarray] = []
        draws, repaired = 0, 0
        for first, share in zip(firsts, np.split(order, cuts), strict=True):
            members = min(GROUP, clients - first)
            least = max(self.least, -(-len(share) // (2 * members)))
            dealt = replace(self, least=least, recipe="niid-bench")._draw(labels[share], members, stream)
            shards += [share[shard] for shard in dealt]
            draws += int(dealt.record["draws"])  # type: ignore[call-overload]
            repaired += int(dealt.record.get("repaired", 0))  # type: ignore[call-overload]
        return DealtShards(shards, {"draws": draws} | ({"repaired": repaired} if repaired else {}))


def _shares(drawer: Drawer, concentration: np.ndarray, open_to: np.ndarray) -> np.ndarray:
    """One Dirichlet draw over the clients that are still open. One always is while samples are left."""
    for _ in range(REDRAWS):
        shares = drawer.dirichlet(concentration) * open_to
        total = shares.sum()
        if total > 0:  # false for NaN too: a tiny β underflows to 0/0
            normalised: np.ndarray = shares / total
            return normalised
    # The limit β → 0: one client takes the whole class.
    shares = np.zeros(len(open_to))
    shares[drawer.permutation(np.flatnonzero(open_to))[0]] = 1.0
    return shares
