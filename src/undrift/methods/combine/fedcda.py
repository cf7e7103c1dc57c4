"""FedCDA: averaging across rounds, with the cached model of every client that fits the others best.

Wang et al.: FedCDA: Federated Learning with Cross-Rounds Divergence-Aware Aggregation, ICLR 2024.

    choose w_n among client n's last K models:  min mean_n F_n(w_n) + (L/2)[mean_n ‖w_n‖² − ‖mean_n w_n‖²]
    θ = uniform mean of the chosen models of *all clients that have replied so far*

Absent clients keep their choice. Participants are split at random into groups. Each group is searched exhaustively
while later groups are left out. F is the loss of the last local epoch. The search needs only inner products (‖Σw‖² from
the Gram matrix), and the sum of all choices is stored, so a round reads the rows of its participants only.

The trap: K^|group| grows fast, so a group has at most `most` clients. During the warm-up (a quarter of the run) the
rule is FedAvg and chooses the latest model. There is no official code. Reimplementations differ in exactly these two
points.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch

from undrift.contract.parts import Combine, Plan, Range, Replies, Server, Tree, server_sum
from undrift.core.errors import BadRequest

BLOCK = 1 << 16


@dataclass(frozen=True)
class FedCDA(Combine):
    K: Annotated[int, Range(least=1)] = 3  # models kept per client
    groups: Annotated[int, Range(least=1)] = 3
    L: Annotated[float, Range(least=0)] = 1.0
    warmup: Annotated[int | None, Range(least=0)] = None  # rounds; None: a quarter of the run
    most: Annotated[int, Range(least=1)] = 4  # clients in a group

    ignores_weights: ClassVar = True

    def validate(self) -> None:
        if self.K > 1 and self.most > math.log(1_000_000, self.K):  # K ** most itself may be too large to compute
            raise BadRequest(
                f"fedcda: K = {self.K} models of most = {self.most} clients are too many choices; lower one"
            )

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
        mean: torch.Tensor = (total / (others + len(rows))).float()
        return mean

    def cached(self, row: Any, model: torch.Tensor, loss: float) -> dict[str, Any]:
        """The client's row with its newest model, which is also the first choice."""
        models = [*(row["models"] if row else []), model][-self.K :]
        losses = [*(row["losses"] if row else []), loss][-self.K :]
        return {"models": models, "losses": losses, "choice": len(models) - 1}

    def search(self, server: Server, rows: list[dict[str, Any]], fixed: torch.Tensor, count: int) -> None:
        """Choose the best combination, group by group. `fixed` is the sum of the `count` models already chosen."""
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
        """The terms that depend on a group's picks: losses, norms, and the norm of the mean of all chosen models."""
        at = [start + pick for start, pick in zip(starts, picks)]
        loss = sum(row["losses"][pick] for row, pick in zip(members, picks))
        norms = sum(gram[i][i] for i in at)
        whole = sum(gram[i][j] for i in [0, *at] for j in [0, *at])
        value: float = loss / n + self.L / 2 * (norms / n - whole / n**2)
        return value


def inner_products(vectors: Sequence[torch.Tensor]) -> list[list[float]]:
    gram = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    for at in range(0, len(vectors[0]), BLOCK):
        block = torch.stack([vector[at : at + BLOCK].double() for vector in vectors])
        gram += block @ block.T
    return gram.tolist()
