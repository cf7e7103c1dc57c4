"""Quantity skew (QS of FLIU): sizes differ between clients, label shares do not.

    q ~ Dir(α·1_K);   n_k = q_k n, of every class the same share

Redrawn up to 100 times until every client has max(classes, 10) samples. Then the small clients are lifted to that, the
others are scaled, and the record says so. Every entry of the client × class matrix is within 1 of n_k n_c / n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from undrift.federation.partition._common import (
    DealtShards,
    checked,
    class_sizes,
    deal,
    largest_remainder,
    positive,
    shuffled_classes,
)
from undrift.federation.partition._fit import dirichlet_rows, proportional

REDRAWS = 100
LEAST = 10


@dataclass(frozen=True)
class QuantitySkew:
    needs_labels: ClassVar[bool] = False
    alpha: float

    def __post_init__(self) -> None:
        positive("quantity_skew", "alpha", self.alpha)

    def __call__(
        self, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None = None
    ) -> DealtShards:
        labels = checked(labels, clients)
        columns = class_sizes(labels)
        least = max(LEAST, int((columns > 0).sum()))
        checked(labels, clients, least)
        draws = 0
        while draws < REDRAWS:
            draws += 1
            sizes = largest_remainder(dirichlet_rows(self.alpha, 1, clients, stream)[0], len(labels))
            if sizes.min() >= least:
                break
        record: dict[str, object] = {"draws": draws}
        if sizes.min() < least:
            record["lifted"] = int((sizes < least).sum())
            # Every client gets the least. The rest goes to the larger clients, in proportion to their surplus.
            sizes = least + largest_remainder(np.maximum(sizes - least, 0) + 1e-12, len(labels) - least * clients)
        return DealtShards(deal(proportional(sizes, columns), shuffled_classes(labels, stream)), record)
