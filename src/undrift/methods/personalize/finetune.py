"""Fine-tuning: a client uses the received model after a few more epochs on its own data. Evaluation only.

Training and uploads are those of the rest of the method, so `finetune` beside `fedavg` measures what a personal method
gains over the simplest one. Stage L1 tunes the new global model, stage L2 the one the round began with. The order of
the samples is drawn from a stream of its own. Inputs are not augmented.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import torch

from undrift.contract.parts import Job, Personalize, Range


@dataclass(frozen=True)
class Finetune(Personalize):
    epochs: Annotated[int, Range(least=0)] = 1

    def personal_models(self, job: Job, state: Any, trained: torch.Tensor) -> list[tuple[Any, torch.Tensor]]:
        twin = job.twin(job.received)
        for x, y in job.batches("finetune", self.epochs):
            # BatchNorm cannot train on one value per channel.
            if len(y) > 1 or not job.plan.layout.batchnorm_needs_two:
                twin.step(twin.loss(twin(x), y))
        return [(1.0, twin.vector)]
