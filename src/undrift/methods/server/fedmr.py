"""FedMR: recombine the clients' models instead of averaging them (Hu et al., 2022).

    t < T₁   every client gets the mean
    t ≥ T₁   for each unit draw a permutation π of the m models; next model i takes that unit from model π(i)

Client i of the next cohort gets model i, dealt cyclically where cohorts differ in size; what is judged is the mean.
The unit is a state key, as in the authors' code (a convolution and its BatchNorm statistics then come from different
clients), or a whole module. The authors average uniformly, FLOOD's port by size; in FLOOD's released loop the line that
hands model i to client i is commented out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import torch

from undrift.contract.parts import Plan, Problem, Replies, Server, ServerUpdate
from undrift.core.errors import BadRequest
from undrift.core.vector import Layout


@dataclass(frozen=True)
class FedMR(ServerUpdate):
    T1: int | None = None  # a twentieth of the run
    unit: Literal["key", "module"] = "key"

    def __post_init__(self) -> None:
        if self.T1 is not None and self.T1 < 0:
            raise BadRequest(f"fedmr: T1 is {self.T1}; it must be a number of rounds of at least 0")
        if self.unit not in ("key", "module"):
            raise BadRequest(f"fedmr: unit is {self.unit!r}; it must be key or module")

    def resolve(self, plan: Plan) -> FedMR:
        return replace(self, T1=plan.share(1 / 20) if self.T1 is None else self.T1)

    def check(self, plan: Plan) -> Iterable[Problem]:
        assert self.T1 is not None
        if plan.rounds <= self.T1 + 1:
            yield Problem(
                "warning",
                f"fedmr deals mixed models after round T1 = {self.T1}, and the run has "
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
        """The places that move together."""
        units: dict[str, list[slice]] = {}
        for entry in layout.entries:
            units.setdefault(entry.name if self.unit == "key" else entry.module, []).append(entry.place)
        return list(units.values())
