"""HetLoRA: every client has a rank of its own.

Cho et al.: Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation Models, EMNLP 2024.

    client k receives the first r_k rows of A and columns of B, the rest is zero, and answers in the same form
    θ = Σ p_k θ_k with zeros beyond r_k        p_k ∝ ‖B_k A_k‖ (the part `adapter_norm`)

Where a row of A and its column of B are both zero, both gradients are zero, so local training leaves them zero: a client of
rank r_k needs no mask. This holds as long as nothing else is added to a step, so parts that add a vector or noise to the
gradient are refused. Ranks are given by client number, in turns; by default they go evenly from 1 to the adapters' rank.

The paper also lets a client prune its rank during training; that is not done here. The zeros travel with the model.
With equal ranks and size weights (`hetlora(ranks=[8])@size`) it is FedAvg.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from undrift.contract.declare import Along
from undrift.contract.parts import Plan, Problem, Replies, Server, ServerUpdate, defines
from undrift.core.errors import BadRequest
from undrift.core.low_rank import adapters, truncated


@dataclass(frozen=True)
class HetLoRA(ServerUpdate):
    ranks: Sequence[int] = ()

    needs: ClassVar = ("adapters",)

    def validate(self) -> None:
        if any(rank < 1 for rank in self.ranks):
            raise BadRequest(f"hetlora's ranks are at least 1, not {min(self.ranks)}")

    def check(self, plan: Plan) -> Iterable[Problem]:
        most = max(adapter.rank for adapter in adapters(plan.layout))
        if self.ranks and max(self.ranks) > most:
            yield Problem("error", f"hetlora has the rank {max(self.ranks)}, and the adapters have {most}; lower it")
        for part in plan.method.parts:
            adds = any(isinstance(kind, Along) for kind in part.downlink.values()) and defines(part, "gradient")
            if adds or (part.protects and defines(part, "gradient")):
                yield Problem(
                    "error",
                    f"{part.name} adds to every entry of a step, also beyond the rank that hetlora gives a client",
                )

    def rank(self, client: int, most: int) -> int:
        return min(most, self.ranks[client % len(self.ranks)]) if self.ranks else 1 + client % most

    def model_for(self, server: Server, client: int, position: int) -> torch.Tensor:
        out = server.vector.clone()
        for adapter in adapters(server.plan.layout):
            truncated(adapter, out, self.rank(client, adapter.rank))
        return out

    def step(self, server: Server, mixed: torch.Tensor, replies: Replies) -> torch.Tensor:
        return mixed
