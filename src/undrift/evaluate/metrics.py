"""Numbers that say how good a set of logits is. Classes absent from both truth and prediction do not count."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch

LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
MetricFunction = Callable[[torch.Tensor, torch.Tensor], float]  # (logits, y) -> one number
BINS = 15  # of the calibration error


def metrics(
    logits: torch.Tensor,
    y: torch.Tensor,
    loss: LossFunction,
    classes: int,
    own: Mapping[str, MetricFunction] | None = None,
    ranks: bool = True,
) -> dict[str, float]:
    """accuracy, loss, macro and weighted F1, balanced accuracy, AUROC, calibration error, recall of every class that
    occurs (`recall:3`), and the user's own. Empty input gives nothing; what is undefined (the AUROC of one class) is
    left out. Without `ranks` the AUROC is too: sorting costs more than all the others together."""
    if not len(y):
        return {}
    table = confusion(logits, y, classes).double()
    hits, truth, guesses = table.diagonal(), table.sum(1), table.sum(0)
    f1 = 2 * hits / (truth + guesses).clamp(min=1)
    there = (truth + guesses) > 0
    recall = hits / truth.clamp(min=1)
    found = {
        "accuracy": (hits.sum() / len(y)).item(),
        "loss": loss(logits, y).double().mean().item(),
        "f1_macro": f1[there].mean().item(),
        "f1_weighted": ((f1 * truth).sum() / truth.sum()).item(),
        "balanced_accuracy": recall[truth > 0].mean().item(),
        "calibration_error": calibration_error(logits, y),
    }
    if ranks and (area := auroc(logits, y, classes)) is not None:
        found["auroc"] = area
    found |= {f"recall:{c}": recall[c].item() for c in truth.nonzero().flatten().tolist()}
    found |= {name: float(function(logits, y)) for name, function in (own or {}).items()}
    return found


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


def two_set_auroc(high: torch.Tensor, low: torch.Tensor) -> float:
    """P(a score of `high` exceeds one of `low`), ties counting half."""
    return ranked_above(high.double().numpy(), torch.cat([high, low]).double().numpy())


def fpr_at(high: torch.Tensor, low: torch.Tensor, recall: float = 0.95) -> float:
    """Share of `low` that is taken for `high` at the threshold that keeps at least `recall` of `high`."""
    threshold = high.double().sort(descending=True).values[max(0, int(np.ceil(recall * len(high) - 1e-9)) - 1)]
    return (low.double() >= threshold).double().mean().item()
