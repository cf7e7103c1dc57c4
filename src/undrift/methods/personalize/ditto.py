"""Ditto: a personal model beside the global one, held near it.

Li et al.: Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021.

    v ← v − η (∇CE(v) + λ (v − θ^t))        once per batch, beside the ordinary local step

The other parts of the method train the global model. v starts at θ⁰, never leaves the client, and is the model the
client uses. λ = 0 is training alone, a large λ keeps v at the received model. The trap: the pull must be added to v's
gradient, because a penalty written through a flat vector has none. v uses the run's own clip, decay and optimizer,
renewed every round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch

from undrift.contract.context import Message
from undrift.contract.job import SecondModel
from undrift.contract.parts import Batch, Job, Personalize, Range, Tree


@dataclass(frozen=True)
class Ditto(Personalize):
    lam: Annotated[float, Range(least=0)] = 0.1

    lockstep: ClassVar = True

    def init_client(self, job: Job) -> torch.Tensor:
        return job.initial

    def before_start(self, job: Job, own: torch.Tensor, server_message: Message) -> SecondModel:
        return job.second_model(own)

    def after_step(self, batch: Batch, job: Job, v: SecondModel) -> None:
        v.learn(batch, plus=self.lam * (v.P - job.plan.layout.trainable(job.received)))

    def after_training(self, job: Job, v: SecondModel, own: torch.Tensor) -> tuple[Tree, Message]:
        return v.vector, {}

    def personal_models(self, job: Job, own: torch.Tensor, trained: torch.Tensor) -> list[tuple[Any, torch.Tensor]]:
        return [(1.0, own)]
