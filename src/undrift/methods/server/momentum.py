"""Server momentum, FedAvgM (Hsu et al., 2019).

    v ← ρ v + (mixed − θ),   θ ← θ + v        written θ ← mixed + ρ v_old, so that ρ = 0 is FedAvg bit for bit

On P only: FLOOD's code gives momentum to BatchNorm statistics as well, which can make a variance negative. The heavy
ball is undamped; FedDecorr's multiplies the change by 1 − ρ, FL-bench's is Nesterov's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from undrift.contract.parts import Replies, Server, ServerUpdate
from undrift.core.errors import BadRequest


@dataclass(frozen=True)
class Momentum(ServerUpdate):
    rho: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.rho < 1:
            raise BadRequest(f"momentum: rho is {self.rho}; it must be at least 0 and below 1")

    def init_server(self, server: Server) -> torch.Tensor:
        return torch.zeros(server.plan.layout.nP)

    def step(self, server: Server, mixed: torch.Tensor, replies: Replies) -> torch.Tensor:
        trainable, carried = server.plan.layout.trainable, self.rho * server.memory
        server.memory = carried + trainable(mixed) - trainable(server.vector)
        ahead = mixed.clone()
        trainable(ahead).add_(carried)
        return ahead
