"""One class per sample: cross-entropy, accuracy. The default.

Classes absent from both truth and prediction do not count. A network may have more outputs than there are classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from undrift.contract.task import Task
from undrift.core.errors import LABELS, BadRequest

BINS = 15  # of the calibration error


@dataclass(frozen=True)
class Classification(Task):
    """One class per sample (y: whole numbers from 0), from logits [samples, classes]."""

    headline = "accuracy"
    least_loss = 0.0
    better = "higher"
    title = "Acc"
    percent = True
    provides = ("labels", "class_logits", "errors")

    def loss(self, output: torch.Tensor, y: Any) -> torch.Tensor:
        return F.cross_entropy(output, y, reduction="none")

    def mean_loss(self, output: torch.Tensor, y: Any) -> torch.Tensor:
        return F.cross_entropy(output, y)

    def measure(self, output: torch.Tensor, y: Any) -> dict[str, float]:
        """accuracy, macro and weighted F1, balanced accuracy, calibration error, AUROC, and the recall of every class that
        occurs (`recall:3`). The AUROC of one class is undefined and left out."""
        found = self.quick_measure(output, y)
        area = auroc(output, y, self.outputs)
        return found if area is None else found | {"auroc": area}

    def quick_measure(self, output: torch.Tensor, y: Any) -> dict[str, float]:
        """All but the AUROC: sorting costs more than all the others together."""
        table = confusion(output, y, self.outputs).double()
        hits, truth, guesses = table.diagonal(), table.sum(1), table.sum(0)
        f1 = 2 * hits / (truth + guesses).clamp(min=1)
        there = (truth + guesses) > 0
        recall = hits / truth.clamp(min=1)
        found = {
            "accuracy": (hits.sum() / len(y)).item(),
            "f1_macro": f1[there].mean().item(),
            "f1_weighted": ((f1 * truth).sum() / truth.sum()).item(),
            "balanced_accuracy": recall[truth > 0].mean().item(),
            "calibration_error": calibration_error(output, y),
        }
        return found | {f"recall:{c}": recall[c].item() for c in truth.nonzero().flatten().tolist()}

    def labels(self, y: Any) -> torch.Tensor:
        found: torch.Tensor = y
        return found

    def predict(self, output: torch.Tensor) -> torch.Tensor:
        return output.argmax(1)

    def error(self, output: torch.Tensor, y: Any) -> torch.Tensor:
        return (output.argmax(1) != y).float()

    def count(self, y: Any) -> int:
        return int(y.max()) + 1

    def targets(self, x: Any, y: Any, who: str) -> Any:
        if not isinstance(y, torch.Tensor) or y.dim() != 1 or y.is_floating_point() or y.is_complex():
            raise BadRequest(f"{who} has labels of {described(y)}; number the classes 0, 1, 2, … ({LABELS})")
        if len(x) != len(y):
            raise BadRequest(f"{who} has {len(x)} samples but {len(y)} labels; give one per sample")
        return y.long()

    def in_range(self, y: Any, who: str) -> None:
        if len(y) and (y.min() < 0 or y.max() >= self.outputs):
            raise BadRequest(f"labels must lie in 0…{self.outputs - 1}; {who} has {int(y.min())} to {int(y.max())}")

    def misfit(self, output: torch.Tensor, y: Any, data: str) -> str:
        if output.dim() != 2 or len(output) != len(y):
            return (
                f"returns an output of shape {tuple(output.shape)} for {len(y)} samples; return one row of logits "
                f"per sample, here ({len(y)}, {self.outputs})"
            )
        if output.shape[-1] < self.outputs:
            return f"returns {output.shape[-1]} logits but {data} has {self.outputs} classes; return one per class"
        return ""


def described(y: Any) -> str:
    if not isinstance(y, torch.Tensor):
        return f"type {type(y).__name__}"
    return f"type {str(y.dtype).removeprefix('torch.')} and shape {tuple(y.shape)}"


def confusion(logits: torch.Tensor, y: torch.Tensor, classes: int) -> torch.Tensor:
    """Counts: row truth, column guess. A network may have more outputs than there are classes."""
    guess = logits.argmax(1).clamp(max=classes - 1)
    return torch.bincount(y * classes + guess, minlength=classes * classes).view(classes, classes)


def calibration_error(logits: torch.Tensor, y: torch.Tensor, bins: int = BINS) -> float:
    """Σ |B|/n · |accuracy(B) − confidence(B)| over bins of equal width of the largest probability (Guo et al., 2017)."""
    confidence, guess = logits.double().softmax(1).max(1)
    place = (confidence * bins).long().clamp(0, bins - 1)  # NaN has no bin and makes all of it NaN
    gap = torch.zeros(bins, dtype=torch.float64).index_add_(0, place.cpu(), ((guess == y).double() - confidence).cpu())
    return (gap.abs().sum() / len(y)).item()


def auroc(logits: torch.Tensor, y: torch.Tensor, classes: int) -> float | None:
    """One class against the rest, by log-probability, mean over the classes that have both; None where no class has."""
    z, truth = logits.double().cpu(), y.cpu().numpy()
    scores = (z - z.logsumexp(1, keepdim=True)).numpy()
    if not np.isfinite(scores).all():
        return None
    areas = [
        ranked_above(scores[truth == c, c], scores[:, c]) for c in range(classes) if 0 < (truth == c).sum() < len(truth)
    ]
    return float(np.mean(areas)) if areas else None


def ranked_above(some: np.ndarray, everything: np.ndarray) -> float:
    """P(one of `some` exceeds one of the others in `everything`), ties counting half: the area under the ROC curve by
    ranks. A third of the time that scikit-learn's curve takes."""
    ordered, n, rest = np.sort(everything), len(some), len(everything) - len(some)
    ranks = (np.searchsorted(ordered, some, "left") + np.searchsorted(ordered, some, "right") + 1) / 2
    return float((ranks.sum() - n * (n + 1) / 2) / (n * rest))
