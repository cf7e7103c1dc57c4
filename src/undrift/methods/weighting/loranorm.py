"""Clients count by the length of their low-rank update.

Cho et al.: Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation Models, EMNLP 2024.

    p_k ∝ ‖B_k A_k‖, over all adapted layers        (uniform while all products are zero)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from undrift.contract.parts import Replies, Server, Weighting
from undrift.core.low_rank import adapters


@dataclass(frozen=True)
class LoRANorm(Weighting):
    needs: ClassVar = ("adapters",)

    def weights(self, server: Server, replies: Replies) -> torch.Tensor:
        norms = []
        for vector in replies.vectors:
            pairs = [adapter.matrices(vector) for adapter in adapters(server.plan.layout)]
            squares = [float(((b.T @ b) * (a @ a.T)).sum()) for a, b in pairs]  # ‖B A‖², without the product
            norms.append(math.sqrt(max(0.0, sum(squares))))
        return torch.tensor(norms if any(norms) else [1.0] * len(norms), dtype=torch.float64)
