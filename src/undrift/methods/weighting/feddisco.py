"""FedDisco: size weights corrected by how far a client's labels are from uniform.

Ye et al.: FedDisco: Federated Learning with Discrepancy-Aware Collaboration, ICML 2023.

    d_k = KL(label histogram ‖ uniform), divided by its sum over the cohort
    p_k ∝ relu(n_k/Σn − a·d_k + b)

The trap: b decides how much of the size is left. With ten clients and b = 1 (FLOOD's table) the raw weights are
1.05 ± 0.05, almost uniform. FedDisco's code has b = 0.1. With a = b = 0 the weights are by size, to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch

from undrift.contract.context import Message
from undrift.contract.declare import Declaration, Number
from undrift.contract.parts import Job, Plan, Range, Replies, Server, Tree, Weighting


def largest_distance(plan: Plan) -> float:
    """KL(one class ‖ uniform) = ln C."""
    return math.log(plan.classes)


@dataclass(frozen=True)
class FedDisco(Weighting):
    a: Annotated[float, Range(least=0)] = 0.5
    b: Annotated[float, Range(least=0)] = 0.1

    needs: ClassVar = ("labels",)

    uplink: ClassVar[Declaration] = {"distance": Number(0.0, largest_distance)}

    def after_training(self, job: Job, scratch: None, state: Any) -> tuple[Tree, Message]:
        q = job.counts.double() / job.counts.sum()
        distance = torch.special.xlogy(q, q * len(q)).sum().clamp(min=0).item()
        job.note("distance", distance)
        return state, {"distance": distance}

    def weights(self, server: Server, replies: Replies) -> torch.Tensor:
        n = torch.tensor(replies.n, dtype=torch.float64)
        d = torch.tensor([message["distance"] for message in replies.client_messages], dtype=torch.float64)
        if d.sum() > 0:
            d = d / d.sum()
        return (n + n.sum() * (self.b - self.a * d)).relu()
