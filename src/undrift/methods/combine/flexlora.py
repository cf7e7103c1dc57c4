"""FlexLoRA: the adapters' products are averaged, and the mean is decomposed again.

Bai et al.: Federated Fine-tuning of Large Language Models under Heterogeneous Tasks and Client Resources, NeurIPS 2024.

    M = Σ_k p_k B_k A_k        U S Vᵀ = svd(M)        B = U_r S_r,  A = V_rᵀ

Everything else is the weighted mean. M has rank at most Σ r_k, and what is beyond r is lost: the mean is exact if r is
large enough, and nearest to M otherwise. The share that was lost is noted. Clients of other ranks are `hetlora`'s.

The trap: A and B are turned in every round. A part that keeps a vector along the model's entries (SCAFFOLD's c) then
corrects coordinates that no longer exist, so a warning says so. With √S on both sides a product of zero would make both
factors zero, and zero factors have zero gradients, so S is with B.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from undrift.contract.declare import Along
from undrift.contract.parts import Combine, Plan, Problem, Replies, Server, server_sum
from undrift.core.low_rank import Adapter, adapters, factored


@dataclass(frozen=True)
class FlexLoRA(Combine):
    needs: ClassVar = ("adapters",)

    def check(self, plan: Plan) -> Iterable[Problem]:
        yield from both_factors(self.name, plan)
        for part in plan.method.parts:
            if any(isinstance(kind, Along) for kind in (*part.uplink.values(), *part.downlink.values())):
                yield Problem(
                    "warning",
                    f"{part.name} keeps a vector along the model's entries, and {self.name} turns the adapters' every round",
                )

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        out = server_sum(replies.vectors, weights)
        lost, whole = 0.0, 0.0
        for adapter in adapters(server.plan.layout):
            left, right = stacked(adapter, replies.vectors, weights)
            a, b = factored(left, right, adapter.rank)
            adapter.put(out, a, b)
            total = product_square(left, right)
            lost, whole = lost + max(0.0, total - float(b.square().sum())), whole + total
        server.note("lost", lost / whole if whole else 0.0)
        return out


def stacked(
    adapter: Adapter, vectors: Sequence[torch.Tensor], weights: Sequence[float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """(left, right) with left · right = Σ p_k B_k A_k: the clients' factors beside and above each other."""
    pairs = [adapter.matrices(vector) for vector in vectors]
    left = torch.cat([b * weight for (_, b), weight in zip(pairs, weights, strict=True)], 1)
    return left, torch.cat([a for a, _ in pairs])


def product_square(left: torch.Tensor, right: torch.Tensor) -> float:
    """‖left · right‖², without the product."""
    return float(((left.T @ left) * (right @ right.T)).sum())


def both_factors(name: str, plan: Plan) -> Iterable[Problem]:
    """Refuse adapters of which the server does not get both factors."""
    private = plan.method.private_names(plan.layout)
    for adapter in adapters(plan.layout):
        if not adapter.trained:
            yield Problem("error", f"{name} needs both factors of an adapter, and one of {adapter.layer}'s is frozen")
            return
        if {adapter.A.name, adapter.B.name} & private:
            yield Problem("error", f"{name} needs both factors of an adapter, and one of {adapter.layer}'s is private")
            return
