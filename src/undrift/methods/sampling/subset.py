"""A fixed share of a client's samples: those with the lowest or the highest loss (FedBSS's motivation study), or any.

Xu et al.: Federated Learning with Sample-level Client Drift Mitigation.

    once on receipt   ℓ_i = CE_i(θ^t) in eval mode        train on the ⌊share · n⌋ smallest (low) or largest (high)

FedBSS compares the drift of clients trained on the lower and the upper half with that of all samples. The trap when
reading it: samples with a small loss have small gradients by construction, so compare directions too, and drift at
matched norm. `which=random` is the control: as many samples, drawn anew every round. A loss that is not finite counts as the
largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch

from undrift.contract.context import Message
from undrift.contract.parts import Job, Range, Sampling


@dataclass(frozen=True)
class Subset(Sampling):
    which: Literal["low", "high", "random"] = "low"
    share: Annotated[float, Range(above=0, most=1)] = 0.5

    lockstep: ClassVar = True

    @property
    def measures(self) -> str:  # type: ignore[override]
        return "" if self.which == "random" else "received"

    def passes(self, round: int) -> tuple[str, ...]:
        return () if self.which == "random" else ("received",)

    def before_training(self, job: Job, state: Any, server_message: Message) -> torch.Tensor:
        if self.which == "random":
            order = torch.randperm(job.n, generator=job.stream("subset"))
        else:
            order = job.scored("received").loss.nan_to_num(math.inf).argsort(stable=True)
        count = max(1, math.floor(self.share * job.n + 1e-9))
        job.note("picked", count)
        return (order[-count:] if self.which == "high" else order[:count]).cpu()

    def epoch_indices(self, job: Job, scratch: torch.Tensor, epoch: int) -> torch.Tensor:
        return scratch
