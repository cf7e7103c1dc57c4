"""By domain: feature skew, one domain per client.

With as many clients as domains, each client holds one whole domain. With more, client k belongs to domain k mod D and
shares it evenly and at random with the domain's other clients. `record["domain"]` lists every client's domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from undrift.core.errors import BadRequest
from undrift.federation.partition._common import DealtShards, checked


@dataclass(frozen=True)
class ByDomain:
    needs_labels: ClassVar[bool] = False
    follows_groups: ClassVar[str] = "domain"  # a client's test slice is its group's test part

    def __call__(
        self, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None = None
    ) -> DealtShards:
        labels = checked(labels, clients)
        if groups is None:
            raise BadRequest(
                "by_domain needs data with domains, and these have none; load pacs32, say, or name --domains"
            )
        groups = np.asarray(groups)
        if groups.dtype.kind not in "iu" or len(groups) != len(labels) or groups.min() < 0:
            raise BadRequest(f"by_domain needs one domain number (0, 1, …) for each of the {len(labels)} samples")
        sizes = np.bincount(groups)
        domains = len(sizes)
        if clients < domains:
            raise BadRequest(
                f"{clients} clients cannot cover {domains} domains one by one; ask for clients={domains} or more"
            )
        shards: list[np.ndarray] = [np.empty(0, dtype=np.int64)] * clients
        for domain, size in enumerate(sizes):
            members = range(domain, clients, domains)
            if size < len(members):
                raise BadRequest(
                    f"domain {domain} has {size or 'no'} samples for {len(members)} clients; "
                    "remove it or ask for fewer clients"
                )
            indices = stream.permutation(np.flatnonzero(groups == domain))
            for member, shard in zip(members, np.array_split(indices, len(members)), strict=True):
                shards[member] = shard.astype(np.int64)
        return DealtShards(shards, {"domain": [k % domains for k in range(clients)]})
