"""Resampling: any number of clients, each with `size` samples drawn with replacement.

    client k:   p_k ~ Dir(α·1_C) if alpha is given, else the data's own label shares;   labels ~ p_k;   a sample of each

Nothing is stored: client k's indices are a function of one key (drawn once from the stream) and of k, so a client costs
nothing until its indices are read. Indices repeat, within a client and between clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, overload

import numpy as np

from undrift.core.errors import BadRequest
from undrift.federation.partition._common import checked, class_sizes, positive, whole


class LazyShards(Sequence[np.ndarray]):
    """The shards of `resample`: item k is computed when it is read, and is always the same."""

    def __init__(self, labels: np.ndarray, clients: int, size: int, alpha: float | None, key: int) -> None:
        sizes = class_sizes(labels)
        self._labels = labels
        self._by_class = np.argsort(labels, kind="stable")
        self._sizes = sizes
        self._firsts = np.cumsum(sizes) - sizes
        self._clients, self._size, self._alpha, self._key = clients, size, alpha, key
        self.record: dict[str, object] = {"with_replacement": True}

    def __len__(self) -> int:
        return self._clients

    @property
    def sizes(self) -> np.ndarray:
        return np.broadcast_to(np.int64(self._size), (self._clients,))

    @overload
    def __getitem__(self, client: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, client: slice) -> list[np.ndarray]: ...
    def __getitem__(self, client: int | slice) -> np.ndarray | list[np.ndarray]:
        if isinstance(client, slice):
            return [self[k] for k in range(*client.indices(self._clients))]
        if not -self._clients <= client < self._clients:
            raise IndexError(f"client {client} of {self._clients}")
        draw = np.random.default_rng([self._key, int(client) % self._clients])
        if self._alpha is None:
            return draw.integers(len(self._labels), size=self._size)
        drawn = draw.choice(len(self._sizes), self._size, p=self._prior(draw))
        within = (draw.random(self._size) * self._sizes[drawn]).astype(np.int64)
        indices: np.ndarray = self._by_class[self._firsts[drawn] + within]
        return indices

    def shares(self, client: int) -> np.ndarray:
        """The label shares of a client's samples, with which its test samples are drawn."""
        return np.bincount(self._labels[self[client]], minlength=len(self._sizes)) / self._size

    def _prior(self, draw: np.random.Generator) -> np.ndarray:
        present = np.flatnonzero(self._sizes)
        prior = np.zeros(len(self._sizes))
        assert self._alpha is not None
        shares = draw.dirichlet(np.full(len(present), float(self._alpha)))
        if not shares.sum() > 0.5:  # a tiny alpha underflows to 0/0; its limit is a single class
            shares = np.eye(len(present))[draw.integers(len(present))]
        prior[present] = shares / shares.sum()
        return prior


@dataclass(frozen=True)
class Resample:
    needs_labels: ClassVar[bool] = False
    size: int
    alpha: float | None = None

    def __post_init__(self) -> None:
        whole("resample", "size", self.size)
        if self.alpha is not None:
            positive("resample", "alpha", self.alpha)

    def __call__(
        self, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None = None
    ) -> LazyShards:
        labels = checked(labels, clients, least=0)
        if not len(labels):
            raise BadRequest("resample draws from the data, but there are 0 samples; load some first")
        return LazyShards(labels, int(clients), int(self.size), self.alpha, int(stream.integers(2**63)))
