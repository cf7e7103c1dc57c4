"""Server momentum (FedAvgM).

Hsu et al.: Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification, 2019.

    v ← ρ v + (mixed − θ),   θ ← θ + v        written θ ← mixed + ρ v_old, so that ρ = 0 is FedAvg bit for bit

On P only: FLOOD's code applies momentum to BatchNorm statistics as well, which can make a variance negative. The heavy
ball is undamped. FedDecorr's multiplies the change by 1 − ρ, FL-bench's is Nesterov's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from undrift.contract.parts import Range, Replies, Server, ServerUpdate


@dataclass(frozen=True)
class Momentum(ServerUpdate):
    rho: Annotated[float, Range(least=0, below=1)] = 0.9

    linear: ClassVar = True

    def init_server(self, server: Server) -> torch.Tensor:
        return torch.zeros(server.plan.layout.nP)

    def step(self, server: Server, mixed: torch.Tensor, replies: Replies) -> torch.Tensor:
        trainable, carried = server.plan.layout.trainable, self.rho * server.memory
        server.memory = carried + trainable(mixed) - trainable(server.vector)
        ahead = mixed.clone()
        trainable(ahead).add_(carried)
        return ahead
