"""Several labels per sample, each there or not: binary cross-entropy; micro and macro F1, mean average precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from undrift.contract.task import Task
from undrift.core.errors import BadRequest
from undrift.tasks._shared import outputs_misfit


@dataclass(frozen=True)
class Multilabel(Task):
    """y: 0 or 1 per label [samples, labels], from one logit per label. A label is predicted where its logit is above 0."""

    headline = "f1_micro"
    least_loss = 0.0
    better = "higher"
    title = "F1"
    percent = True
    provides = ("errors",)

    def loss(self, output: torch.Tensor, y: Any) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(output, y, reduction="none").mean(1)

    def measure(self, output: torch.Tensor, y: Any) -> dict[str, float]:
        """f1_micro over all labels together, f1_macro the mean over labels that occur or are predicted, and
        mean_average_precision over labels that occur."""
        found = self.quick_measure(output, y)
        scores, truth = output.double().cpu().numpy(), y.cpu().numpy() > 0.5
        areas = [average_precision(scores[:, c], truth[:, c]) for c in range(truth.shape[1]) if truth[:, c].any()]
        return found | ({"mean_average_precision": float(np.mean(areas))} if areas else {})

    def quick_measure(self, output: torch.Tensor, y: Any) -> dict[str, float]:
        truth, guess = y > 0.5, output > 0
        hits, both = (truth & guess).sum(0).double(), (truth.sum(0) + guess.sum(0)).double()
        there = both > 0
        found = {"f1_micro": (2 * hits.sum() / both.sum().clamp(min=1)).item()}
        return found | ({"f1_macro": (2 * hits[there] / both[there]).mean().item()} if there.any() else {})

    def predict(self, output: torch.Tensor) -> torch.Tensor:
        return (output > 0).long()

    def error(self, output: torch.Tensor, y: Any) -> torch.Tensor:
        return ((output > 0) != (y > 0.5)).float().mean(1)

    def count(self, y: Any) -> int:
        return int(y.shape[1])

    def example(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        return torch.zeros(2, *shape), torch.zeros(2, self.outputs)

    def targets(self, x: Any, y: Any, who: str) -> Any:
        y = super().targets(x, y, who)
        if not isinstance(y, torch.Tensor) or y.dim() != 2 or not ((y == 0) | (y == 1)).all():
            raise BadRequest(f"{who} has targets that are not 0 or 1 for every label; give (samples, labels)")
        return y.float()

    def in_range(self, y: Any, who: str) -> None:
        if y.shape[1] != self.outputs:
            raise BadRequest(f"{who} has {y.shape[1]} labels per sample, and the task has {self.outputs}; give as many")

    def misfit(self, output: torch.Tensor, y: Any, data: str) -> str:
        return outputs_misfit(output, (len(y), self.outputs), "one logit per label", data)


def average_precision(scores: np.ndarray, truth: np.ndarray) -> float:
    """Σ (recall step) · precision at it, from the highest score down; equal scores count together."""
    order = np.argsort(-scores, kind="stable")
    ordered, hits = scores[order], np.cumsum(truth[order])
    last = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)  # of every group of equal scores
    precision, recall = hits[last] / (last + 1), hits[last] / hits[-1]
    return float((np.diff(recall, prepend=0.0) * precision).sum())
