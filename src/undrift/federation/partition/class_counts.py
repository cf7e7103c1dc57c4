"""Class counts: an exact number of samples of each class.

`class_counts([2000, 913, …])` gives every client these counts. One row per client gives each client its own counts.
Clients share no sample, and the rest of the data is not used. (Xu et al., "Aggregation Weighting of Federated Learning
via Generalization Bound Estimation", section 5.1: 20,000 CIFAR-10 images with 2000 of each class against a skewed row,
one client each.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from undrift.core.errors import BadRequest
from undrift.federation.partition._common import DealtShards, checked, class_sizes, deal, shuffled_classes, whole


@dataclass(frozen=True)
class ClassCounts:
    counts: Any  # [number per class], or one such list per client; stored as tuples, which compare and hash

    def __post_init__(self) -> None:
        given = self.counts
        if not _listed(given) or not len(given):
            raise BadRequest(
                f"class_counts must have a list of counts per class, or one such list per client, not {given!r}"
            )
        nested = all(_listed(row) for row in given)
        rows = [tuple(row) for row in given] if nested else [tuple(given)]
        for row in rows:
            for count in row:
                whole("class_counts", "a count", count, least=0)
            if not sum(row):
                raise BadRequest(f"class_counts {list(row)} would leave a client without samples; give it at least one")
        object.__setattr__(self, "counts", tuple(rows) if nested else rows[0])

    def __call__(
        self, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None = None
    ) -> DealtShards:
        labels = checked(labels, clients)
        rows = self.counts if isinstance(self.counts[0], tuple) else (self.counts,) * clients
        if len(rows) != clients:
            raise BadRequest(f"class_counts has {len(rows)} rows for {clients} clients; give one row each")
        sizes = class_sizes(labels)
        counts = np.zeros((clients, max(len(sizes), *map(len, rows))), dtype=np.int64)
        for client, row in enumerate(rows):
            counts[client, : len(row)] = row
        held = np.pad(sizes, (0, counts.shape[1] - len(sizes)))
        asked = counts.sum(0)
        short = np.flatnonzero(asked > held)
        if len(short):
            c = int(short[0])
            raise BadRequest(
                f"class_counts asks for {asked[c]} samples of class {c} over {clients} clients, but there are "
                f"{held[c]}; ask for fewer"
            )
        dealt = deal(counts[:, : len(sizes)], shuffled_classes(labels, stream))
        return DealtShards(dealt, {"unused": len(labels) - int(asked.sum())})


def _listed(value: object) -> bool:
    return isinstance(value, list | tuple | np.ndarray)
