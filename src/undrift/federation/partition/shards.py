"""Shards (McMahan et al. 2017): sort by label, cut into N·S equal shards, deal S at random to every client.

All clients have the same number of samples. A shard may contain two labels, so a client holds up to 2S classes. The
n mod N·S samples that do not fit are drawn at random and discarded, and the record counts them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undrift.core.errors import BadRequest
from undrift.federation.partition._common import DealtShards, checked, whole


@dataclass(frozen=True)
class Shards:
    per_client: int

    def __post_init__(self) -> None:
        whole("shards", "per_client", self.per_client)

    def __call__(
        self, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None = None
    ) -> DealtShards:
        labels = checked(labels, clients)
        number = clients * self.per_client
        size = len(labels) // number
        if not size:
            raise BadRequest(
                f"shards({self.per_client}) with {clients} clients makes {number} shards, but there are {len(labels)} "
                "samples; ask for fewer clients or shards, or use resample(size)"
            )
        used = stream.permutation(len(labels))[: number * size]
        ordered = used[np.argsort(labels[used], kind="stable")]
        shards = ordered.reshape(number, size)[stream.permutation(number)]
        unused = len(labels) - len(used)
        return DealtShards(shards.reshape(clients, -1), {"unused": unused} if unused else {})
