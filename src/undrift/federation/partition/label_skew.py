"""Label skew at equal sizes (LS of FLIU): label shares differ between clients, sizes do not.

    p_k ~ Dir(α·1_L);   M ≥ 0 with column sums n_l and row sums n/K, fitted to the p_k by Sinkhorn–Knopp

The paper prints row sums K/L for a matrix with column sums 1, which is possible for K = L only. L/K is meant, and with
classes of unequal size the counts n_l and n/K take their place. Columns are rounded by largest remainder, so every
sample is used once and sizes differ by a few. `tolerance` stops the fit early: 0.05 lets sizes differ by up to 5 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undrift.federation.partition._common import (
    DealtShards,
    checked,
    class_sizes,
    deal,
    positive,
    repair,
    shuffled_classes,
)
from undrift.federation.partition._fit import dirichlet_rows, round_columns, sinkhorn


@dataclass(frozen=True)
class LabelSkew:
    alpha: float
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        positive("label_skew", "alpha", self.alpha)
        positive("label_skew", "tolerance", self.tolerance)

    def __call__(
        self, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None = None
    ) -> DealtShards:
        labels = checked(labels, clients)
        columns = class_sizes(labels)
        start = dirichlet_rows(self.alpha, clients, len(columns), stream)
        rows = np.full(clients, len(labels) / clients)
        present = columns > 0
        fitted = np.zeros(start.shape)
        fitted[:, present], record = sinkhorn(_safe(start[:, present]), rows, columns[present], self.tolerance)
        counts = round_columns(fitted, columns)
        if repaired := repair(counts, 1, stream):
            record["repaired"] = repaired
        return DealtShards(deal(counts, shuffled_classes(labels, stream)), record)


def _safe(rows: np.ndarray) -> np.ndarray:
    """The start rows. A row whose whole mass lies on absent classes starts with equal shares instead."""
    return np.where(rows.sum(1, keepdims=True) > 0, rows, 1.0)
