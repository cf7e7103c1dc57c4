"""Target skew: the values of a regression's target differ between clients.

    bins = quantiles of the target, equally many samples in each;   bin b is split between clients by Dir(α·1_K)

What `dirichlet` does with classes, for numbers: α → ∞ is an even split, α → 0 gives a bin to one client. A client's test
slice has the shares of the bins that its training samples have. The bins are cut on the training targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from undrift.core.errors import BadRequest
from undrift.federation.partition._common import DealtShards, positive, whole
from undrift.federation.partition.dirichlet import Dirichlet


@dataclass(frozen=True)
class TargetSkew:
    needs_labels: ClassVar[bool] = False
    alpha: float
    bins: int = 10
    least: int = 1

    def __post_init__(self) -> None:
        positive("target_skew", "alpha", self.alpha)
        whole("target_skew", "bins", self.bins, least=2)
        whole("target_skew", "least", self.least)

    def strata(self, train: Any, test: Any, task: Any, stream: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The bin of every training and every test sample; `train` and `test` are (x, y)."""
        if "labels" in task.provides or not isinstance(train[1], torch.Tensor) or not train[1].is_floating_point():
            other = "label_skew" if "labels" in task.provides else "cluster_skew"
            raise BadRequest(
                f"target_skew deals by the number to predict, and {task.name} has none; use {other}({self.alpha:g})"
            )
        y, test_y = (np.asarray(one[:, None] if one.dim() == 1 else one) for one in (train[1], test[1]))
        if y.shape[1] != 1:
            raise BadRequest(
                f"target_skew deals by one number per sample, and these data have {y.shape[1]}; use cluster_skew or iid"
            )
        cuts = np.unique(np.quantile(y[:, 0], np.linspace(0, 1, self.bins + 1)[1:-1]))
        return np.searchsorted(cuts, y[:, 0]), np.searchsorted(cuts, test_y[:, 0])

    def __call__(
        self, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None = None
    ) -> DealtShards:
        """`labels` are the bins."""
        return Dirichlet(self.alpha, least=self.least)(labels, clients, stream)
