"""The geometric median of the clients' updates (RFA).

Pillutla, Kakade, Harchaoui: Robust Aggregation for Federated Learning, IEEE TSP 2022.

    minimise Σ_k p_k ‖z − Δ_k‖ by smoothed Weiszfeld:  z ← Σ β_k Δ_k / Σ β_k,   β_k = p_k / max(ν, ‖z − Δ_k‖)

Clients with less than half of the *weight* may send anything. As z is always a mixture of the Δ_k, the steps need only
their pairwise distances D: ‖z − Δ_k‖² = Σ_j α_j D_jk − ½ Σ_ij α_i α_j D_ij. The vectors are read twice, however many
steps there are. The trap: with weights by size one large broken client can hold half of the weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch

from undrift.contract.parts import Combine, Plan, Problem, Range, Replies, Server
from undrift.methods.combine._points import distances, mixture, need

LEAST = 3


@dataclass(frozen=True)
class Geomedian(Combine):
    nu: Annotated[float, Range(above=0)] = 1e-6
    steps: Annotated[int, Range(least=1)] = 100

    def check(self, plan: Plan) -> Iterable[Problem]:
        if plan.cohort is not None and plan.cohort < LEAST:
            yield Problem("error", f"geomedian needs a cohort of at least {LEAST}; this run has {plan.cohort:g}")

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        need(replies, LEAST, self.name)
        shares = weiszfeld(distances(server, replies), torch.tensor(weights, dtype=torch.float64), self.nu, self.steps)
        for client, share in zip(replies.ids, shares.tolist()):
            server.note("weight", share, client=client)
        return mixture(server, replies, shares.tolist())


def weiszfeld(D: torch.Tensor, p: torch.Tensor, nu: float, steps: int) -> torch.Tensor:
    """The mixture α of points with squared distances D whose point is their geometric median under the weights p."""
    alpha = p / p.sum()
    for _ in range(steps):
        away = (D @ alpha - alpha @ D @ alpha / 2).clamp(min=0).sqrt().clamp(min=nu)
        new = p / away
        new = new / new.sum()
        if (new - alpha).abs().max() < 1e-12:
            return new
        alpha = new
    return alpha
