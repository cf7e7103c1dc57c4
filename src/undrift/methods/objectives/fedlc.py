"""FedLC: logits calibrated by the client's label counts.

Zhang et al.: Federated Learning with Label Distribution Skew via Logits Calibration, ICML 2022.

    cross-entropy of z_c − τ n_{k,c}^(−1/4)

A rare class must win by a margin, so a client that hardly has it does not push its weights away. A class the client
does not have counts as 1e-8 samples: an offset of 100 τ, which masks it at τ = 1 and is hardly felt at τ = 0.01.
`absent=mask` takes it out of the softmax at every τ, as FedDecorr's script does (its 0^(−1/4) is infinite). A client with
one class hardly moves, as intended. Evaluation uses the raw logits. The paper's denominator omits the true class.
Maintainers who tried it report collapse, so this is the ordinary cross-entropy. FedDecorr's script has τ = 0.1, FL-bench
1; the paper tunes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch.nn import functional as F

from undrift.contract.context import Message
from undrift.contract.parts import Batch, Job, Objective, Range

ABSENT = 1e-8


@dataclass(frozen=True)
class FedLC(Objective):
    tau: Annotated[float, Range(least=0)] = 1.0
    absent: Literal["count", "mask"] = "count"

    lockstep: ClassVar = True
    needs: ClassVar = ("labels",)

    def before_training(self, job: Job, state: Any, server_message: Message) -> torch.Tensor:
        offset = (self.tau * job.counts.double().clamp(min=ABSENT) ** -0.25).float()
        return offset if self.absent == "count" else offset.masked_fill(job.counts == 0, math.inf)

    def logits(self, z: torch.Tensor, batch: Batch, job: Job, offset: torch.Tensor) -> torch.Tensor:
        spare = z.size(-1) - offset.size(-1)  # a model may have more outputs than the data have classes
        return z - (F.pad(offset, (0, spare), value=self.spare_offset()) if spare else offset)

    def stack_scratches(self, scratches: Sequence[Any]) -> torch.Tensor:
        return torch.stack(list(scratches)).unsqueeze(1)

    def spare_offset(self) -> float:
        return self.tau * ABSENT**-0.25 if self.absent == "count" else math.inf
