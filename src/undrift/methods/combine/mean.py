"""The weighted mean of the clients' vectors, parameters and floating buffers alike.

McMahan et al.: Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017.

    θ = Σ_k p_k θ_k        a float64 sum in client order, rounded once
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from undrift.contract.parts import Combine, Replies, Server, server_sum


@dataclass(frozen=True)
class Mean(Combine):
    averages: ClassVar[bool] = True
    linear: ClassVar = True

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        return server_sum(replies.vectors, weights)
