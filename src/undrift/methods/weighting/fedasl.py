"""FedASL: clients whose loss is near the cohort's median count most.

Talukder, Islam: Computationally Efficient Auto-Weighted Aggregation for Heterogeneous Federated Learning, 2022.

    d_k = βσ where |L_k − median| ≤ ασ, else |L_k − median|        p_k ∝ 1/d_k

The trap: it favours the *median* loss, not the lowest. With equal losses, and with two clients while α < 1, all clients
count the same. α, β, the population σ and the mean over all epochs are those of FedNolowe's code. FedASL's own code has
α = 0.9, the sample σ (`ddof=1`) and the last epoch. `hybrid` is FedNolowe's "1 − d": p_k ∝ 1 − d_k/Σd.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from undrift.contract.parts import Range, Replies, Server, Weighting


@dataclass(frozen=True)
class FedASL(Weighting):
    alpha: Annotated[float, Range(least=0)] = 0.5
    beta: Annotated[float, Range(above=0)] = 0.2
    loss: Literal["all", "last"] = "all"  # mean over all local epochs, or over the last one
    ddof: Literal[0, 1] = 0
    hybrid: bool = False

    def weights(self, server: Server, replies: Replies) -> torch.Tensor:
        losses = torch.tensor(replies.loss if self.loss == "all" else replies.last, dtype=torch.float64)
        if self.loss == "last":  # the mean over all epochs is noted for every rule
            for client, loss in zip(replies.ids, replies.last):
                server.note("last_loss", loss, client)
        away = (losses - losses.quantile(0.5)).abs()
        sigma = losses.std(correction=self.ddof)
        if not sigma > 0:
            return torch.ones_like(losses)
        d = torch.where(away <= self.alpha * sigma, self.beta * sigma, away)
        return 1 - d / d.sum() if self.hybrid else 1 / d
