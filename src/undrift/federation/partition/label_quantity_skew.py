"""Label and quantity skew together (LSQS of FLIU).

`form="classwise"`: each class is split over the clients by its own Dir(α·1_K), and nothing is fitted. With ten classes
the sizes vary mildly. `form="sinkhorn"`: rows p_k ~ Dir(α·1_L) and sizes q ~ Dir(α·1_K), fitted to row sums q_k n and
column sums n_l. Sizes vary as in quantity skew. A client that would have no sample takes one from the largest client,
and the record counts these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undrift.federation.partition._common import (
    DealtShards,
    checked,
    class_sizes,
    deal,
    one_of,
    positive,
    repair,
    shuffled_classes,
)
from undrift.federation.partition._fit import dirichlet_rows, round_columns, sinkhorn

TOLERANCE = 1e-9


@dataclass(frozen=True)
class LabelQuantitySkew:
    alpha: float
    form: str = "classwise"

    def __post_init__(self) -> None:
        positive("label_quantity_skew", "alpha", self.alpha)
        one_of("label_quantity_skew", "form", self.form, ("classwise", "sinkhorn"))

    def __call__(
        self, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None = None
    ) -> DealtShards:
        labels = checked(labels, clients)
        columns = class_sizes(labels)
        record: dict[str, object] = {}
        if self.form == "classwise":
            exact = dirichlet_rows(self.alpha, len(columns), clients, stream).T
        else:
            present = columns > 0
            start = dirichlet_rows(self.alpha, clients, int(present.sum()), stream)
            sizes = dirichlet_rows(self.alpha, 1, clients, stream)[0]
            # A size that underflowed to 0 counts as a thousandth of a sample, until the repair.
            rows = np.maximum(sizes * len(labels), 1e-3)
            exact = np.zeros((clients, len(columns)))
            exact[:, present], record = sinkhorn(start, rows * (len(labels) / rows.sum()), columns[present], TOLERANCE)
        counts = round_columns(exact, columns)
        if repaired := repair(counts, 1, stream):
            record["repaired"] = repaired
        return DealtShards(deal(counts, shuffled_classes(labels, stream)), record)
