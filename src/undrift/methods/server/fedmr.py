"""FedMR: the clients' models are recombined instead of averaged.

Hu et al.: FedMR: Federated Learning via Model Recombination, 2022.

    t < T₁   every client gets the mean
    t ≥ T₁   for each unit draw a permutation π of the m models; next model i takes that unit from model π(i)

Client i of the next cohort gets model i, cyclically if cohorts differ in size. The mean is evaluated. The unit is a
state key, as in the authors' code (a convolution and its BatchNorm statistics then come from different clients), or a
whole module. The authors average uniformly, FLOOD's port by size. In FLOOD's released loop the line that hands model i
to client i is commented out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch

from undrift.contract.parts import Plan, Problem, Range, Replies, Server, ServerUpdate
from undrift.core.vector import Layout


@dataclass(frozen=True)
class FedMR(ServerUpdate):
    T1: Annotated[int | None, Range(least=0)] = None  # a twentieth of the run
    unit: Literal["key", "module"] = "key"

    def resolve(self, plan: Plan) -> FedMR:
        return replace(self, T1=plan.share(1 / 20) if self.T1 is None else self.T1)

    def check(self, plan: Plan) -> Iterable[Problem]:
        assert self.T1 is not None
        if plan.rounds <= self.T1 + 1:
            yield Problem(
                "warning",
                f"fedmr recombines models after round T1 = {self.T1}, and the run has "
                f"{plan.rounds} rounds: it is plain averaging; lower T1 or lengthen the run",
            )

    def init_server(self, server: Server) -> list[torch.Tensor]:
        return []

    def model_for(self, server: Server, client: int, position: int) -> torch.Tensor:
        models: list[torch.Tensor] = server.memory
        return models[position % len(models)] if models else server.vector

    def step(self, server: Server, mixed: torch.Tensor, replies: Replies) -> torch.Tensor:
        assert self.T1 is not None
        if server.round >= self.T1:
            draw = server.stream("deal")
            models = [torch.empty_like(mixed) for _ in replies.ids]
            for places in self.units(server.plan.layout):
                order = torch.randperm(len(models), generator=draw).tolist()
                for model, source in zip(models, order):
                    for place in places:
                        model[place] = replies.vectors[source][place]
            server.memory = models
        return mixed

    def units(self, layout: Layout) -> list[list[slice]]:
        """The slices that move together."""
        units: dict[str, list[slice]] = {}
        for entry in layout.entries:
            units.setdefault(entry.name if self.unit == "key" else entry.module, []).append(entry.place)
        return list(units.values())
