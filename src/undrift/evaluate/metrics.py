"""Numbers that say how good a set of outputs is: those of the task, and some that no task owns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from undrift.contract.task import Task
from undrift.tasks.classification import ranked_above

LossFunction = Callable[[torch.Tensor, Any], torch.Tensor]
MetricFunction = Callable[[torch.Tensor, Any], float]  # (output, y) -> one number


def metrics(
    output: torch.Tensor,
    y: Any,
    task: Task,
    loss: LossFunction | None = None,
    own: Mapping[str, MetricFunction] | None = None,
    quick: bool = False,
) -> dict[str, float]:
    """The headline first, then the loss (the task's, or another one), the task's other metrics and the user's own. Empty
    input gives nothing. `quick` leaves out what takes long."""
    if not len(y):
        return {}
    measured = task.quick_measure(output, y) if quick else task.measure(output, y)
    found = {name: value for name, value in measured.items() if name == task.headline}
    found["loss"] = (task.loss if loss is None else loss)(output, y).double().mean().item()
    return found | measured | {name: float(function(output, y)) for name, function in (own or {}).items()}


def two_set_auroc(high: torch.Tensor, low: torch.Tensor) -> float:
    """P(a score of `high` exceeds one of `low`), ties counting half."""
    return ranked_above(high.double().numpy(), torch.cat([high, low]).double().numpy())


def fpr_at(high: torch.Tensor, low: torch.Tensor, recall: float = 0.95) -> float:
    """Share of `low` that is taken for `high` at the threshold that keeps at least `recall` of `high`."""
    threshold = high.double().sort(descending=True).values[max(0, int(np.ceil(recall * len(high) - 1e-9)) - 1)]
    return (low.double() >= threshold).double().mean().item()
