"""IID: all clients draw from the same distribution.

Permute and split evenly. Sizes differ by at most one. `stratified=True` splits every class evenly instead
("all labels represented equally", FLIU). The leftovers of each class go to the first clients, so sizes differ by up to
the number of classes (MNIST over 100 clients: 596 to 606).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from undrift.federation.partition._common import DealtShards, checked, class_sizes, deal, shuffled_classes


@dataclass(frozen=True)
class Iid:
    needs_labels: ClassVar[bool] = False
    stratified: bool = False

    def __call__(
        self, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None = None
    ) -> DealtShards:
        labels = checked(labels, clients)
        if not self.stratified:
            return DealtShards(np.array_split(stream.permutation(len(labels)), clients))
        even, extra = np.divmod(class_sizes(labels), clients)
        counts = even + (np.arange(clients)[:, None] < extra)
        if not counts.sum(1).all():  # fewer samples of every class than clients: no client may be empty
            return DealtShards(
                np.array_split(np.concatenate(shuffled_classes(labels, stream)), clients), {"even": False}
            )
        return DealtShards(deal(counts, shuffled_classes(labels, stream)))
