"""FedRS: scores of classes that a client lacks are scaled down, so that it does not unlearn them.

Li, Zhan: FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data, KDD 2021.

    z_c = α_c (w_c · h) + bias_c        α_c = 1 for the client's classes, α for the others

Written as an addition to the logits, (α_c − 1)(raw_c − bias_c), it commutes with other changes of the logits. A client
that has all classes trains as in FedAvg, and evaluation is never scaled.

The trap: the authors' release is a soft form, α_c = α + (1 − α) q_c/max q with the label histogram q (`soft=True`), and
clips gradients. Their head has no bias. If the head has one, it is not scaled and keeps its full gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch.nn import functional as F

from undrift.contract.context import Message
from undrift.contract.parts import Batch, Job, Objective, Range


@dataclass(frozen=True)
class FedRS(Objective):
    alpha: Annotated[float, Range(least=0, most=1)] = 0.5
    soft: bool = False

    lockstep: ClassVar = True
    needs: ClassVar = ("features", "labels")

    def before_training(self, job: Job, state: Any, server_message: Message) -> torch.Tensor:
        """α_c − 1 per logit."""
        rows = job.plan.layout.entry(f"{job.plan.layout.head}.weight").shape[0]
        q = F.pad(job.counts, (0, rows - len(job.counts))).float()
        present = q / q.max() if self.soft else (q > 0).float()
        return (1 - self.alpha) * (present - 1)

    def logits(self, z: torch.Tensor, batch: Batch, job: Job, scratch: torch.Tensor) -> torch.Tensor:
        assert batch.head is not None
        assert batch.features is not None
        bias = batch.head(torch.zeros_like(batch.features[..., :1, :]))  # the live bias, with its gradient
        return z + scratch * (batch.logits - bias)

    def stack_scratches(self, scratches: Sequence[Any]) -> torch.Tensor:
        return torch.stack(list(scratches)).unsqueeze(1)
