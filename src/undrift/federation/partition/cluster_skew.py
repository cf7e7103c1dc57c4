"""Cluster skew: the inputs differ between clients, for data of any task.

    clusters = k-means of the training inputs;   cluster c is split between clients by Dir(α·1_K)

Inputs are standardised numbers; sequences count how often each value occurs, as shares of their length. The test inputs
belong to the nearest centre, and a client's test slice has the shares of clusters that its training samples have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from undrift.core.errors import BadRequest
from undrift.core.samples import Columns, Ragged
from undrift.federation.partition._common import DealtShards, positive, whole
from undrift.federation.partition.dirichlet import Dirichlet


@dataclass(frozen=True)
class ClusterSkew:
    needs_labels: ClassVar[bool] = False
    alpha: float
    k: int = 10
    least: int = 1

    def __post_init__(self) -> None:
        positive("cluster_skew", "alpha", self.alpha)
        whole("cluster_skew", "k", self.k, least=2)
        whole("cluster_skew", "least", self.least)

    def strata(self, train: Any, test: Any, task: Any, stream: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The cluster of every training and every test sample; `train` and `test` are (x, y)."""
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits

        if self.k > len(train[1]):
            raise BadRequest(
                f"cluster_skew cannot make {self.k} clusters of {len(train[1])} samples; choose k below that"
            )
        width = vocabulary(train[0], test[0])
        x, test_x = numbers(train[0], width), numbers(test[0], width)
        means = KMeans(self.k, n_init=1, random_state=int(stream.integers(2**31)))
        with threadpool_limits(1):  # sums in another order could move a sample that lies between two centres
            found = means.fit_predict(x)
            return found.astype(np.int64), (means.predict(test_x) if len(test_x) else found[:0]).astype(np.int64)

    def __call__(
        self, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None = None
    ) -> DealtShards:
        """`labels` are the clusters."""
        return Dirichlet(self.alpha, least=self.least)(labels, clients, stream)


def vocabulary(*inputs: Any) -> dict[str, int]:
    """How many values the whole numbers of sequences have, by column."""
    sizes: dict[str, int] = {}
    for x in inputs:
        for name, column in x.items() if isinstance(x, Columns) else [("", x)]:
            if isinstance(column, Ragged) and len(column):
                sizes[name] = max(sizes.get(name, 0), int(column.values.max()) + 1)
    return sizes


def numbers(x: Any, width: dict[str, int], name: str = "") -> np.ndarray:
    """The inputs as one row of float64 per sample."""
    if isinstance(x, Columns):
        return np.concatenate([numbers(column, width, key) for key, column in sorted(x.items())], axis=1)
    if not isinstance(x, Ragged):
        return np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    values, lengths = x.values.numpy(), x.lengths.numpy()
    if values.dtype.kind == "f":  # measurements: their mean over the sequence
        return (
            np.add.reduceat(values.reshape(len(values), -1).astype(np.float64), x.offsets[:-1].numpy())
            / lengths[:, None]
        )
    counts = np.zeros((len(x), width[name]))
    np.add.at(counts, (np.repeat(np.arange(len(x)), lengths), values), 1.0)
    return counts / lengths[:, None]
