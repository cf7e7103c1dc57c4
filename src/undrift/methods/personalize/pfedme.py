"""pFedMe: a personal model is the proximal point of the global one, and the global one follows it.

Dinh, Tran, Nguyen: Personalized Federated Learning with Moreau Envelopes, NeurIPS 2020.

    each batch   K steps   θ ← θ − α (g(θ) + λ (θ − P))        then each step uses λ (P − θ)

λ (P − θ̂) is the gradient of the Moreau envelope min_θ F(θ) + λ/2 ‖θ − P‖², so P follows the envelopes and not the
losses. θ starts every round at the received model, goes on from batch to batch, and is the model the client uses. α is
θ's own rate (`rate`; it follows the run's decay). g is the gradient of the whole composition at θ, so other parts are
not lost.

The trap: both rates matter. α λ > 2 makes θ jump over P, and lr · λ > 1 makes P jump over θ. Here the run's momentum,
decay and clip also act on both; the authors' code has plain steps for both and a weight decay of 0.001 for θ. Their
server mixes with the last global model, w ← (1 − β) w + β mean; with their default β = 1 that is the mean. Their code
lets all clients train in every round, selects whom to average, and weighs them by size; the paper's mean is uniform, and
so is the one that this name prefers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch

from undrift.contract.context import Message
from undrift.contract.job import Twin
from undrift.contract.parts import Batch, Job, Objective, Personalize, Plan, Problem, Range, Tree


@dataclass(frozen=True)
class PFedMe(Personalize, Objective):
    lam: Annotated[float, Range(above=0)] = 15.0
    rate: Annotated[float, Range(above=0)] = 0.05
    steps: Annotated[int, Range(least=1)] = 5

    needs: ClassVar = ("gradient_at",)

    def check(self, plan: Plan) -> Iterable[Problem]:
        for name, value, most in (("rate", self.rate, 2.0), ("lr", plan.lr, 1.0)):
            if value * self.lam > most:
                yield Problem(
                    "warning", f"pfedme with {name} · lam = {value * self.lam:g}, above {most:g}, may diverge; lower one of them"
                )  # fmt: skip

    def init_client(self, job: Job) -> torch.Tensor:
        return job.initial

    def before_start(self, job: Job, own: torch.Tensor, server_message: Message) -> Twin:
        return job.twin(job.received, lr=self.rate * job.lr / job.plan.lr)

    def gradient(self, P: torch.Tensor, G: torch.Tensor, batch: Batch, job: Job, twin: Twin) -> None:
        for _ in range(self.steps):
            twin.follow(batch.gradient_at(twin.P) + self.lam * (twin.P - P))
        torch.sub(P, twin.P, out=G).mul_(self.lam)

    def after_training(self, job: Job, twin: Twin, own: torch.Tensor) -> tuple[Tree, Message]:
        personal = job.trained.clone()  # its buffers are those of the model that trained
        job.plan.layout.trainable(personal).copy_(twin.P)
        return personal, {}

    def personal_models(self, job: Job, own: torch.Tensor, trained: torch.Tensor) -> list[tuple[Any, torch.Tensor]]:
        return [(1.0, own)]
