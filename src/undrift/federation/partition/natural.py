"""Natural: the data name the client of every sample. One client per distinct id, in sorted order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from undrift.core.errors import BadRequest
from undrift.federation.partition._common import DealtShards, checked


@dataclass(frozen=True)
class Natural:
    needs_labels: ClassVar[bool] = False
    follows_groups: ClassVar[str] = "client"  # a client's test slice is its group's test part

    def __call__(
        self, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None = None
    ) -> DealtShards:
        labels = checked(labels, clients)
        if groups is None:
            raise BadRequest(
                "natural needs data with a client id per sample, and these have none; use another partition"
            )
        ids, owner = np.unique(np.asarray(groups), return_inverse=True)
        if len(owner) != len(labels):
            raise BadRequest(f"natural got {len(owner)} client ids for {len(labels)} samples; give one for each")
        if len(ids) != clients:
            raise BadRequest(
                f"the data name {len(ids)} clients but {clients} were asked for; ask for clients={len(ids)}"
            )
        order = np.argsort(owner, kind="stable").astype(np.int64)
        return DealtShards(np.split(order, np.cumsum(np.bincount(owner))[:-1]))
