"""FedRep: a shared representation and personal heads, trained in turn (Collins et al., ICML 2021).

    epochs 1 … E − b   the head moves, the body rests
    the last b epochs  the body moves, the head rests

The published name also keeps the head private (`private.head`). The trap: a zeroed gradient still moves under momentum
and weight decay, so the *update* is masked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from undrift.contract.parts import Job, Personalize, Plan, Problem
from undrift.core.errors import BadRequest


@dataclass(frozen=True)
class FedRep(Personalize):
    body_epochs: int = 1

    def __post_init__(self) -> None:
        if self.body_epochs < 1:
            raise BadRequest(f"fedrep: body_epochs is {self.body_epochs}; it must be at least 1")

    def check(self, plan: Plan) -> Iterable[Problem]:
        if plan.layout.head is None:
            yield Problem("error", "fedrep trains the head apart, and the model's logits are not the output of a "
                          "linear layer; let the model return what its last linear layer gives")  # fmt: skip
        if self.body_epochs >= plan.epochs:
            yield Problem("error", f"fedrep with body_epochs = {self.body_epochs} never trains the head in "
                          f"{plan.epochs} local epochs; use --epochs {self.body_epochs + 1} or more")  # fmt: skip

    def update_mask(self, job: Job, epoch: int) -> torch.Tensor:
        layout = job.plan.layout
        head = layout.mask(entry.name for entry in layout.entries if entry.module == layout.head)[: layout.nP]
        return (head if epoch < job.plan.epochs - self.body_epochs else ~head).to(job.received.device)
