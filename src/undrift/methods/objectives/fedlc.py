"""FedLC: logits calibrated by the client's label counts (Zhang et al., ICML 2022).

    cross-entropy of z_c − τ n_{k,c}^(−1/4)

A rare class must win by a margin, so its weights are not pushed away by a client that hardly has it. A class the client
does not have counts as 1e-8 samples: an offset of 100 τ, so it is masked; a client with one class hardly moves, as it
should. Evaluation uses the raw logits. The paper's denominator omits the true class; maintainers who tried it report
collapse, so this is the ordinary cross-entropy. FedDecorr's script has τ = 0.1, FL-bench 1; the paper tunes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from undrift.contract.parts import Batch, Job, Objective
from undrift.core.errors import BadRequest

ABSENT = 1e-8


@dataclass(frozen=True)
class FedLC(Objective):
    tau: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.tau < float("inf"):
            raise BadRequest(f"fedlc: tau is {self.tau}; it must be a number of at least 0")

    def before_training(self, job: Job, state: Any, server_message: dict[str, Any]) -> torch.Tensor:
        return (self.tau * job.counts.double().clamp(min=ABSENT) ** -0.25).float()

    def logits(self, z: torch.Tensor, batch: Batch, job: Job, offset: torch.Tensor) -> torch.Tensor:
        spare = z.size(1) - len(offset)  # a model may have more outputs than the data have classes
        return z - (F.pad(offset, (0, spare), value=self.tau * ABSENT**-0.25) if spare else offset)
