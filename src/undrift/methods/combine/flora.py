"""FLoRA: the clients' adapters are stacked, merged, and begun anew in every round.

Wang et al.: FLoRA: Federated Fine-Tuning Large Language Models with Heterogeneous Low-Rank Adaptations, NeurIPS 2024.

    M ← M + Σ_k p_k B_k A_k        A ← a fresh draw,  B ← 0

Stacking (B_1 … B_m) beside and (A_1 … A_m) above each other gives the sum of the products exactly, whatever the ranks. The
paper adds it to the base. Here the base stays: M is a second tree of the model, the buffers `lora_merged` of the adapted
layers (`--adapt "lora(merged=true)"`), which only the server changes. So M is as large as the adapted weights. It travels to
the clients, where the paper sends the stack of all clients' adapters, and not back: a reply has A and B alone.

The trap: a part that keeps a vector along the model's entries keeps it for adapters that are gone after the round, so a
warning says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from undrift.contract.declare import Along
from undrift.contract.parts import Combine, Plan, Problem, Replies, Server, server_sum
from undrift.core.low_rank import adapters
from undrift.core.vector import Layout


@dataclass(frozen=True)
class FLoRA(Combine):
    needs: ClassVar = ("adapters",)

    def check(self, plan: Plan) -> Iterable[Problem]:
        private = plan.method.private_names(plan.layout)
        for adapter in adapters(plan.layout):
            if adapter.merged is None:
                yield Problem(
                    "error",
                    f'{self.name} merges into a second tree, and {adapter.layer} has none; use --adapt "lora(merged=true)"',
                )
                return
            if not adapter.trained or {adapter.A.name, adapter.B.name} & private:
                yield Problem("error", f"{self.name} needs both factors of an adapter, trained and shared")
                return
        for part in plan.method.parts:
            if any(isinstance(kind, Along) for kind in (*part.uplink.values(), *part.downlink.values())):
                yield Problem(
                    "warning",
                    f"{part.name} keeps a vector along the model's entries, and {self.name} begins new adapters every round",
                )

    def server_entries(self, layout: Layout) -> Iterable[str]:
        return [adapter.merged.name for adapter in adapters(layout) if adapter.merged is not None]

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        out, draw = server_sum(replies.vectors, weights), server.stream("adapters")
        for adapter in adapters(server.plan.layout):
            assert adapter.merged is not None
            product = torch.zeros(adapter.merged.shape[0], adapter.inputs, dtype=torch.float64)
            for vector, weight in zip(replies.vectors, weights, strict=True):
                a, b = adapter.matrices(vector)
                product += weight * (b @ a)
            out[adapter.merged.place] = (server.vector[adapter.merged.place].double() + product.view(-1)).float()
            bound = 1 / math.sqrt(adapter.inputs)  # as a layer's weights are initialised
            fresh = (2 * torch.rand(adapter.rank, adapter.inputs, generator=draw) - 1) * bound
            adapter.put(out, fresh, torch.zeros(adapter.B.shape))
        return out
