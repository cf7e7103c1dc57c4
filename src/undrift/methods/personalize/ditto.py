"""Ditto: beside the global model every client trains its own, held near it (Li et al., ICML 2021).

    v ← v − η (∇CE(v) + λ (v − θ^t))        once per batch, beside the ordinary local step

The global half is whatever the rest of the method is; v starts at θ⁰, never leaves the client, and is what the client
holds. λ = 0 is training alone, a large λ holds the received model. The trap: the pull must be added to v's gradient, as
a penalty written through a flat vector has none; v takes the run's own clip, decay and optimizer, renewed every round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from undrift.contract.parts import Batch, Job, Personalize, Tree
from undrift.core.errors import BadRequest


@dataclass(frozen=True)
class Ditto(Personalize):
    lam: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.lam < math.inf:
            raise BadRequest(f"ditto: lam must be at least 0, not {self.lam}")

    def init_client(self, job: Job) -> torch.Tensor:
        return job.initial

    def before_start(self, job: Job, own: torch.Tensor, server_message: dict[str, Any]) -> Any:
        return job.twin(own)

    def after_step(self, batch: Batch, job: Job, twin: Any) -> None:
        pull = self.lam * (twin.P - job.plan.layout.trainable(job.received))
        twin.step(twin.loss(twin(batch.x), batch.y), plus=pull)

    def after_training(self, job: Job, twin: Any, own: Any) -> tuple[Tree, dict[str, Any]]:
        return twin.vector, {}

    def personal_models(self, job: Job, own: torch.Tensor, trained: torch.Tensor) -> list[tuple[Any, torch.Tensor]]:
        return [(1.0, own)]
