"""Pathological label skew: every client holds only a few classes.

`form="flood"`: s = ⌈rN/C⌉ shards of every class. A deck with each label s times is shuffled, and every client is dealt
r labels and a random shard of each. A label may come twice, so a client holds *at most* r classes. If rN is not a
multiple of C, the surplus of the deck is discarded.

`form="fliu"`: r *distinct* classes for every client. Each class is split equally among its takers. `balanced` gives
every class the same number of takers (rN/C, rounded either way). Without it clients draw freely, sizes vary, and
classes that no client drew are not used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undrift.core.errors import BadRequest
from undrift.federation.partition._common import (
    DealtShards,
    checked,
    class_sizes,
    deal,
    one_of,
    shuffled_classes,
    whole,
)


@dataclass(frozen=True)
class Pathological:
    classes_per_client: int
    form: str = "flood"
    balanced: bool = True

    def __post_init__(self) -> None:
        whole("pathological", "classes_per_client", self.classes_per_client)
        one_of("pathological", "form", self.form, ("flood", "fliu"))

    def __call__(
        self, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None = None
    ) -> DealtShards:
        labels = checked(labels, clients)
        sizes = class_sizes(labels)
        present = np.flatnonzero(sizes)
        if self.classes_per_client > len(present):
            raise BadRequest(
                f"pathological({self.classes_per_client}) asks for more classes per client than the {len(present)} "
                "that exist; ask for fewer"
            )
        take = self._flood if self.form == "flood" else self._fliu
        takes, record = take(present, clients, stream)
        counts = np.zeros((clients, len(sizes)), dtype=np.int64)
        for c, shards in zip(present, takes.T, strict=True):
            held = int(shards.sum())
            made = record.get("shards_per_class", held)
            if sizes[c] < made:
                raise BadRequest(
                    f"pathological({self.classes_per_client}) with {clients} clients cuts class {c} into {made} "
                    f"shards, but it has {sizes[c]} samples; ask for fewer clients, or use resample(size, alpha)"
                )
            counts[:, c] = _shard_sizes(shards, int(sizes[c]), made, stream)
        return DealtShards(deal(counts, shuffled_classes(labels, stream)), dict(record))

    def _flood(
        self, present: np.ndarray, clients: int, stream: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, int]]:
        """How many shards of each class (columns: `present`) every client takes."""
        dealt = self.classes_per_client * clients
        shards = -(-dealt // len(present))
        deck = stream.permutation(np.repeat(np.arange(len(present)), shards))[:dealt]
        takes = np.zeros((clients, len(present)), dtype=np.int64)
        np.add.at(takes, (np.repeat(np.arange(clients), self.classes_per_client), deck), 1)
        return takes, {"shards_per_class": shards}

    def _fliu(
        self, present: np.ndarray, clients: int, stream: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, int]]:
        r, classes = self.classes_per_client, len(present)
        takes = np.zeros((clients, classes), dtype=np.int64)
        if not self.balanced:
            for row in takes:
                row[stream.choice(classes, r, replace=False)] = 1
            return takes, _unused(takes)
        even, extra = divmod(r * clients, classes)
        left = even + (stream.permutation(classes) < extra).astype(np.int64)
        for done, index in enumerate(stream.permutation(clients)):
            # A class that lacks as many takers as clients are left must be taken by each of them.
            must = left == clients - done
            chosen = np.flatnonzero(must)
            free = np.where(must, 0, left).astype(np.float64)
            if missing := r - len(chosen):
                more = stream.choice(classes, missing, replace=False, p=free / free.sum())
                chosen = np.concatenate([chosen, more])
            takes[index, chosen] = 1
            left[chosen] -= 1
        return takes, _unused(takes)


def _unused(takes: np.ndarray) -> dict[str, int]:
    unused = int((takes.sum(0) == 0).sum())
    return {"unused_classes": unused} if unused else {}


def _shard_sizes(shards: np.ndarray, size: int, made: int, stream: np.random.Generator) -> np.ndarray:
    """Samples per client when a class of `size` is cut into `made` near-equal shards dealt at random."""
    counts = np.zeros(len(shards), dtype=np.int64)
    if made:
        each = np.full(made, size // made)
        each[: size % made] += 1
        owners = np.repeat(np.arange(len(shards)), shards)
        np.add.at(counts, owners, stream.permutation(each)[: len(owners)])
    return counts
