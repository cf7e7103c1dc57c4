"""FedExP: the server step grows when the clients' updates disagree.

Jhunjhunwala, Wang, Joshi: FedExP: Speeding Up Federated Averaging via Extrapolation, ICLR 2023.

    η_g = max(1, Σ_k p_k‖Δ_k‖² / (2(‖Δ̄‖² + ε_t)))        θ ← θ + η_g Δ̄        ε_t = ε γ^(2t), γ the rate's decay

The mean of the last two iterates is evaluated, because the extrapolated ones oscillate. While η_g = 1 the global model
is FedAvg's to the last bit.

The trap: norms are over P only. FedDecorr's port includes BatchNorm statistics. The released code has m·ε where the
paper has ε. The factor is derived for the weighted mean, so this part *is* the Combine as well, and another one is
refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch

from undrift.contract.parts import Combine, Range, Replies, Server, ServerUpdate, Tree, server_sum


@dataclass(frozen=True)
class FedExP(ServerUpdate, Combine):
    epsilon: Annotated[float, Range(above=0)] = 1e-3

    def init_server(self, server: Server) -> Tree:
        return {"previous": server.vector, "spread": 0.0}

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        trainable = server.plan.layout.trainable
        squares = [norm2(trainable(new) - trainable(old)) for new, old in zip(replies.vectors, replies.sent)]
        server.memory = {"previous": server.vector, "spread": sum(p * s for p, s in zip(weights, squares))}
        return server_sum(replies.vectors, weights)

    def step(self, server: Server, mixed: torch.Tensor, replies: Replies) -> torch.Tensor:
        nP = server.plan.layout.nP
        change = mixed[:nP] - server.vector[:nP]
        epsilon = self.epsilon * server.plan.lr_decay ** (2 * server.round)
        factor = max(1.0, server.memory["spread"] / (2 * (norm2(change) + epsilon)))
        server.note("factor", factor)
        return torch.cat([mixed[:nP] + (factor - 1) * change, mixed[nP:]])

    def evaluated(self, server: Server) -> torch.Tensor:
        previous: torch.Tensor = server.memory["previous"]
        return (server.vector + previous) / 2


def norm2(vector: torch.Tensor) -> float:
    return vector.double().square().sum().item()
