"""FedNTD: what the received model says about the classes that are not true is kept.

Lee et al.: Preservation of the Global Knowledge by Not-True Distillation in Federated Learning, NeurIPS 2022.

    loss = CE + β τ² · mean KL( q̃_g ‖ q̃ ),    q̃ = softmax(z̃ / τ),   z̃ = the logits without that of the true class

z_g are the logits of the received model. The true class is left to the local data, the others are held where the
federation has them. With two classes there is one not-true class and the term is zero.

The trap: the softmax is over the not-true classes alone. With the true class in it the term is ordinary distillation,
which holds back what the client should learn. KL is a mean over samples and a sum over classes (`batchmean`). The
received model is frozen and in eval mode here; copies of it in training mode would draw dropout and move statistics.
The term uses the raw logits, also where another part calibrates those of the cross-entropy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch.nn import functional as F

from undrift.contract.context import Message
from undrift.contract.job import Reference
from undrift.contract.parts import Batch, Job, Objective, Plan, Problem, Range


@dataclass(frozen=True)
class FedNTD(Objective):
    beta: Annotated[float, Range(least=0)] = 1.0
    tau: Annotated[float, Range(above=0)] = 1.0

    needs: ClassVar = ("labels",)
    lockstep: ClassVar = True

    def passes(self, round: int) -> Sequence[str]:
        return ("received",)

    def check(self, plan: Plan) -> Iterable[Problem]:
        if plan.classes < 3:
            yield Problem("warning", f"fedntd with {plan.classes} classes is plain training: only one is not true")
        elif self.beta == 0:
            yield Problem("warning", "fedntd with beta = 0 is plain training at the cost of one more forward pass")

    def before_training(self, job: Job, state: Any, server_message: Message) -> Reference:
        return job.reference(job.received)

    def loss(self, batch: Batch, job: Job, received: Reference) -> torch.Tensor:
        theirs, _ = received(batch)
        ours, theirs = (not_true(z, batch.y) / self.tau for z in (batch.logits, theirs))
        kl = F.kl_div(F.log_softmax(ours, 1), F.log_softmax(theirs, 1), reduction="batchmean", log_target=True)
        return self.beta * self.tau**2 * kl


def not_true(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The logits without that of the true class: (B, C) -> (B, C − 1)."""
    others = torch.ones_like(logits, dtype=torch.bool).scatter_(1, y[:, None], False)
    return logits[others].view(len(y), -1)
