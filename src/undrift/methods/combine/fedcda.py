"""FedCDA: average across rounds, of every client the cached model that fits the others best (Wang et al., ICLR 2024).

    choose w_n among client n's last K models:  min mean_n F_n(w_n) + (L/2)[mean_n ‖w_n‖² − ‖mean_n w_n‖²]
    θ = uniform mean of the chosen models of *all clients seen so far*

Absent clients keep their choice. Participants are dealt at random into groups, each searched exhaustively while later
groups are left out. F is the loss of the last local epoch. Only inner products enter the search (‖Σw‖² from the Gram
matrix), and the sum of all choices is kept, so a round reads the rows of its participants and of nobody else.

The trap: K^|group| grows fast, so a group has at most `most` clients. In the warm-up (a quarter of the run) it is
FedAvg, choosing the latest. There is no official code; reimplementations differ in exactly these two points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from undrift.contract.parts import Combine, Plan, Replies, Server, Tree, server_sum
from undrift.core.errors import BadRequest

BLOCK = 1 << 16


@dataclass(frozen=True)
class FedCDA(Combine):
    K: int = 3  # models kept per client
    groups: int = 3
    L: float = 1.0
    warmup: int | None = None  # rounds; None: a quarter of the run
    most: int = 4  # clients in a group

    ignores_weights: ClassVar = True

    def __post_init__(self) -> None:
        if self.K < 1 or self.groups < 1 or self.most < 1 or not 0 <= self.L < math.inf:
            raise BadRequest("fedcda: K, groups and most must be at least 1 and L at least 0, not "
                             f"{self.K}, {self.groups}, {self.most}, {self.L}")  # fmt: skip
        if self.warmup is not None and self.warmup < 0:
            raise BadRequest(f"fedcda: warmup must be at least 0 rounds, not {self.warmup}")
        if self.K**self.most > 1_000_000:
            raise BadRequest(f"fedcda: K = {self.K} models of {self.most} clients are too many choices; lower one")

    def resolve(self, plan: Plan) -> FedCDA:
        return replace(self, warmup=plan.share(0.25)) if self.warmup is None else self

    def init_server(self, server: Server) -> Tree:
        return {"total": torch.zeros(server.plan.layout.n, dtype=torch.float64), "seen": 0}

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        old = [server.shelf.get(client) for client in replies.ids]
        rest, others = server.memory["total"].clone(), server.memory["seen"]
        for row in old:
            if row is not None:
                rest -= row["models"][row["choice"]]
                others -= 1
        rows = [self.cached(row, model, loss) for row, model, loss in zip(old, replies.vectors, replies.last)]
        if server.round >= (self.warmup or 0):
            self.search(server, rows, rest if others else torch.zeros_like(rest), others)
        chosen = [row["models"][row["choice"]] for row in rows]
        for client, row in zip(replies.ids, rows):
            server.shelf[client] = row
            server.note("age", len(row["models"]) - 1 - row["choice"], client=client)
        total = sum(chosen[1:], chosen[0].double()) + (rest if others else 0)
        server.memory = {"total": total, "seen": others + len(rows)}
        if server.round < (self.warmup or 0):
            return server_sum(replies.vectors, weights)
        if not others:
            return server_sum(chosen, 1 / len(chosen))
        return (total / (others + len(rows))).float()

    def cached(self, row: Any, model: torch.Tensor, loss: float) -> dict[str, Any]:
        """The client's row with its newest model, which is also the choice for now."""
        models = [*(row["models"] if row else []), model][-self.K :]
        losses = [*(row["losses"] if row else []), loss][-self.K :]
        return {"models": models, "losses": losses, "choice": len(models) - 1}

    def search(self, server: Server, rows: list[dict[str, Any]], fixed: torch.Tensor, count: int) -> None:
        """Group by group the best combination; `fixed` is the sum of `count` models that stand."""
        nP = server.plan.layout.nP
        fixed = fixed[:nP].clone()
        order = torch.randperm(len(rows), generator=server.stream("groups"))
        for group in order.tensor_split(max(self.groups, math.ceil(len(rows) / self.most))):
            members = [rows[i] for i in group.tolist()]
            if not members:
                continue
            models = [[model[:nP] for model in row["models"]] for row in members]
            gram = inner_products([fixed, *itertools.chain(*models)])
            starts = list(itertools.accumulate([1, *(len(own) for own in models[:-1])]))
            count += len(members)
            choices = itertools.product(*(range(len(own)) for own in models))
            best = min(choices, key=lambda picks: self.objective(picks, members, gram, starts, count))
            for row, own, pick in zip(members, models, best):
                row["choice"] = pick
                fixed += own[pick]

    def objective(
        self, picks: tuple[int, ...], members: list[dict[str, Any]], gram: list[list[float]], starts: list[int], n: int
    ) -> float:
        """What depends on the picks of a group: its losses, its norms, and the norm of the mean of all that stand."""
        at = [start + pick for start, pick in zip(starts, picks)]
        loss = sum(row["losses"][pick] for row, pick in zip(members, picks))
        norms = sum(gram[i][i] for i in at)
        whole = sum(gram[i][j] for i in [0, *at] for j in [0, *at])
        return loss / n + self.L / 2 * (norms / n - whole / n**2)


def inner_products(vectors: Sequence[torch.Tensor]) -> list[list[float]]:
    gram = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    for at in range(0, len(vectors[0]), BLOCK):
        block = torch.stack([vector[at : at + BLOCK].double() for vector in vectors])
        gram += block @ block.T
    return gram.tolist()
