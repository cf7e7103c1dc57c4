"""Fine-tuning: a client holds the received model after a few more epochs on its own data.

Evaluation only: training and what is sent are those of the rest of the method, so `finetune` beside `fedavg` asks what
a personal method gains over the simplest one. At stage L1 it is the new global model that is tuned, at L2 the one the
round began with. The order of the samples is drawn from a stream of its own; inputs are not augmented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from undrift.contract.parts import Job, Personalize
from undrift.core.errors import BadRequest


@dataclass(frozen=True)
class Finetune(Personalize):
    epochs: int = 1

    def __post_init__(self) -> None:
        if self.epochs < 0:
            raise BadRequest(f"finetune: epochs must be at least 0, not {self.epochs}")

    def personal_models(self, job: Job, state: Any, trained: torch.Tensor) -> list[tuple[Any, torch.Tensor]]:
        twin = job.twin(job.received)
        for x, y in job.batches("finetune", self.epochs):
            if (
                len(y) > 1 or not job.plan.layout.batchnorm_needs_two
            ):  # BatchNorm cannot learn from one value per channel
                twin.step(twin.loss(twin(x), y))
        return [(1.0, twin.vector)]
