"""Numbers that say how good a set of logits is. Classes absent from both truth and prediction do not count."""

from __future__ import annotations

from collections.abc import Callable

import torch

LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def metrics(logits: torch.Tensor, y: torch.Tensor, loss: LossFunction, classes: int) -> dict[str, float]:
    """accuracy, loss, macro and weighted F1, balanced accuracy. Empty input gives nothing."""
    if not len(y):
        return {}
    guess = logits.argmax(1)
    confusion = torch.bincount(y * classes + guess.clamp(max=classes - 1), minlength=classes * classes)
    table = confusion.view(classes, classes).double()  # rows: truth
    hits, truth, guesses = table.diagonal(), table.sum(1), table.sum(0)
    f1 = 2 * hits / (truth + guesses).clamp(min=1)
    there = (truth + guesses) > 0
    recall = hits / truth.clamp(min=1)
    return {
        "accuracy": (hits.sum() / len(y)).item(),
        "loss": loss(logits, y).double().mean().item(),
        "f1_macro": f1[there].mean().item(),
        "f1_weighted": ((f1 * truth).sum() / truth.sum()).item(),
        "balanced_accuracy": recall[truth > 0].mean().item(),
    }
