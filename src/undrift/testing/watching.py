"""Local training that notices a hook which changes what it is only lent: the parameters and the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from undrift.contract.context import Batch
from undrift.round.client import ClientRound
from undrift.round.second_gradient import Bound
from undrift.round.training import LocalTraining
from undrift.testing import Broken


class WatchedTraining(LocalTraining):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for name in ("logits_hooks", "sample_weights", "loss_terms", "gradient_hooks", "after_steps"):
            setattr(self, name, [watched(one) for one in getattr(self, name)])
        if self.second is not None:
            self.second.hooks = [watched(one) for one in self.second.hooks]


class WatchedRound(ClientRound):
    training = WatchedTraining


def watched(one: Bound) -> Bound:
    hook, job, scratch = one
    return guarded(hook), job, scratch


def guarded(hook: Callable[..., Any]) -> Callable[..., Any]:
    part, name = getattr(hook, "__self__", hook), getattr(hook, "__name__", "a hook")

    def call(*args: Any) -> Any:
        batch = next(one for one in args if isinstance(one, Batch))
        lent = {"P": batch.P, "batch.x": batch.x, "batch.y": batch.y, "batch.index": batch.index}
        before = {what: tensor.clone() for what, tensor in lent.items()}
        found = hook(*args)
        for what, tensor in lent.items():
            if not same(tensor, before[what]):
                fix = (
                    "change G in place; batch.gradient_at(P) looks at another point"
                    if what == "P"
                    else "work on a copy"
                )
                raise Broken(
                    f"{getattr(part, 'name', 'a part')} changes {what} in `{name}`, which it may only read; {fix}"
                )
        return found

    return call


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.nan_to_num(), other.nan_to_num())
