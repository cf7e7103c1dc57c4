"""FedFomo: every client mixes the models of other clients that help it.

Zhang et al.: Personalized Federated Learning with First Order Model Optimization, ICLR 2021.

Client i receives M clients' models θ_j, and weighs them on validation data it never trains on:

    w_j = (L(θ_i^old) − L(θ_j)) / (‖θ_j − θ_i^old‖ + 1e-5)        θ_i^old: where its last training began; norm over P
    θ_i ← Σ_j w_j⁺ θ_j / Σ_j w_j⁺   if any w_j > 0, else its own model; then it trains from there

The server remembers which models helped which client, L_i ← L_i + w (raw, not clipped; at first 1 for the client
itself), and sends the M models with the largest L_i among those it has. Ties are broken by a seeded draw. If a client
has too few samples to hold any out, the training data are used instead. PFLlib, which the FLIU paper used, evaluates
candidates in train mode, does not shuffle, and divides by zero without validation data. This part does not. The
authors' exploration (ε-greedy) is not in PFLlib and not here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import torch

from undrift.contract.context import Message
from undrift.contract.declare import Declaration, Models, Numbers
from undrift.contract.parts import Job, Personalize, Range, Replies, Server, Tree, server_sum


@dataclass(frozen=True)
class FedFomo(Personalize):
    M: Annotated[int, Range(least=1)] = 5
    validation: Annotated[float, Range(least=0, below=1)] = 0.2

    @property
    def downlink(self) -> Declaration:
        return {"models": Models(self.M)}

    @property
    def uplink(self) -> Declaration:
        return {"likes": Numbers(self.M)}

    # ---- the server ----------------------------------------------------------------------------------------------

    def message_for(self, server: Server, client: int) -> Message:
        present = list(server.shelf)
        likes = self.likes(server, client)
        tie = torch.randperm(len(present), generator=server.stream(f"ties/{client}")).tolist()
        ranked = sorted(zip(present, tie), key=lambda other: (-likes.get(str(other[0]), 0.0), other[1]))
        return {"models": {other: server.shelf[other]["model"] for other, _ in ranked[: self.M]}}

    def receive(self, server: Server, replies: Replies) -> None:
        for client, vector, message in zip(replies.ids, replies.vectors, replies.client_messages):
            likes = dict(self.likes(server, client))
            for other, raw in message["likes"].items():
                likes[str(other)] = likes.get(str(other), 0.0) + raw
            server.shelf[client] = {"model": vector, "likes": likes}

    def likes(self, server: Server, client: int) -> dict[str, float]:
        """Row i of the matrix L, sparse. It starts as a row of the identity."""
        row: Any = server.shelf.get(client)
        likes: dict[str, float] = {str(client): 1.0} if row is None else row["likes"]
        return likes

    # ---- a client ------------------------------------------------------------------------------------------------

    def init_client(self, job: Job) -> Tree:
        return {"own": job.initial, "old": job.initial}

    def hold_out(self, job: Job) -> torch.Tensor:
        shuffled = torch.randperm(job.n, generator=job.lasting("validation"))
        return shuffled[: math.floor(self.validation * job.n + 1e-9)]

    def before_start(self, job: Job, state: Any, server_message: Message) -> dict[str, Any]:
        models: dict[int, torch.Tensor] = server_message.get("models", {})
        raw = self.raw(job, state["old"], models)
        total = sum(max(w, 0.0) for w in raw.values())
        weights = {other: max(w, 0.0) / total for other, w in raw.items()} if total > 0 else {}
        start = server_sum(list(models.values()), list(weights.values())) if weights else state["own"]
        job.note("weights", {str(other): weight for other, weight in weights.items()})
        return {"start": start, "raw": raw}

    def raw(self, job: Job, old: torch.Tensor, models: dict[int, torch.Tensor]) -> dict[int, float]:
        """w_j of every received model, 0 if it is not finite."""
        if not models:
            return {}
        before, *losses = job.losses([old, *models.values()], on="held")
        if math.isnan(before):  # nothing is held out
            before, *losses = job.losses([old, *models.values()])
        trainable, raw = job.plan.layout.trainable, dict[int, float]()
        for (other, model), loss in zip(models.items(), losses):
            distance = torch.linalg.vector_norm(trainable(model - old), dtype=torch.float64).item()
            w = (before - loss) / (distance + 1e-5)
            raw[other] = w if math.isfinite(w) else 0.0
        return raw

    def start(self, job: Job, scratch: dict[str, Any]) -> torch.Tensor:
        start: torch.Tensor = scratch["start"]
        return start

    def after_training(self, job: Job, scratch: dict[str, Any], state: Any) -> tuple[Tree, Message]:
        return {"own": job.trained, "old": job.start}, {"likes": scratch["raw"]}
