"""FedRep: a shared body and private heads, trained in turn.

Collins et al.: Exploiting Shared Representations for Personalized Federated Learning, ICML 2021.

    epochs 1 … E − b   the head is trained, the body is fixed
    the last b epochs  the body is trained, the head is fixed

The published name also keeps the head private (`private.head`). The trap: parameters with a zeroed gradient still move
under momentum and weight decay, so the *update* is masked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from undrift.contract.parts import Job, Personalize, Plan, Problem, Range


@dataclass(frozen=True)
class FedRep(Personalize):
    body_epochs: Annotated[int, Range(least=1)] = 1

    lockstep: ClassVar = True

    def check(self, plan: Plan) -> Iterable[Problem]:
        if plan.layout.head is None:
            yield Problem(
                "error",
                "fedrep trains the head separately, and the model's logits are not the output of a "
                "linear layer; let the model return what its last linear layer gives",
            )
        elif plan.layout.entry(f"{plan.layout.head}.weight").kind == "frozen":
            yield Problem(
                "error",
                f"fedrep trains the head separately, and {plan.layout.head} of this model is frozen; train it, or use another method",
            )
        if self.body_epochs >= plan.epochs:
            yield Problem(
                "error",
                f"fedrep with body_epochs = {self.body_epochs} never trains the head in "
                f"{plan.epochs} local epochs; use --epochs {self.body_epochs + 1} or more",
            )

    def update_mask(self, job: Job, epoch: int) -> torch.Tensor:
        layout = job.plan.layout
        head = layout.mask(entry.name for entry in layout.entries if entry.module == layout.head)[: layout.nP]
        return (head if epoch < job.plan.epochs - self.body_epochs else ~head).to(job.received.device)
