"""FedLC: logits calibrated by the client's label counts.

Zhang et al.: Federated Learning with Label Distribution Skew via Logits Calibration, ICML 2022.

    cross-entropy of z_c − τ n_{k,c}^(−1/4)

A rare class must win by a margin, so a client that hardly has it does not push its weights away. A class the client
does not have counts as 1e-8 samples: an offset of 100 τ, so it is masked. A client with one class hardly moves, as
intended. Evaluation uses the raw logits. The paper's denominator omits the true class. Maintainers who tried it report
collapse, so this is the ordinary cross-entropy. FedDecorr's script has τ = 0.1, FL-bench 1; the paper tunes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch.nn import functional as F

from undrift.contract.context import Message
from undrift.contract.parts import Batch, Job, Objective, Range

ABSENT = 1e-8


@dataclass(frozen=True)
class FedLC(Objective):
    tau: Annotated[float, Range(least=0)] = 1.0

    def before_training(self, job: Job, state: Any, server_message: Message) -> torch.Tensor:
        return (self.tau * job.counts.double().clamp(min=ABSENT) ** -0.25).float()

    def logits(self, z: torch.Tensor, batch: Batch, job: Job, offset: torch.Tensor) -> torch.Tensor:
        spare = z.size(1) - len(offset)  # a model may have more outputs than the data have classes
        return z - (F.pad(offset, (0, spare), value=self.tau * ABSENT**-0.25) if spare else offset)
