"""FedDyn: dynamic regularisation, in the form of the authors' repository.

Acar et al.: Federated Learning Based on Dynamic Regularization, ICLR 2021.

Every client keeps h_k, the sum of its own drifts, and is pulled back by it. The server adds the mean of all h_k:

    each step    g ← g + α_k (P − Θ + h_k)                  α_k = α n/(N n_k), Θ = what was received
    afterwards   h_k ← h_k + θ_k − Θ
    server       θ̄ = mixed,   Θ ← θ̄ + (1/N) Σ_all h_k       what is evaluated is θ̄

The server computes (1/N)Σh from the models alone, so nothing extra travels. The limit is the *size-weighted* optimum,
because α_k contains the sizes. The traps: at α → 0 this is not FedAvg (the server still adds Σh). α_k explodes for tiny
clients, so it is capped at `cap` times α. A note says when the cap applies. The cap shifts the optimum; `cap=none`
removes it.

Where gradients are clipped, the authors clip the gradient of the loss and of the linear term, and add α_k P as weight
decay after the clip: `decay=true`. By default the whole regulariser is clipped, so that no step is longer than the clip
allows. At the received model with h = 0 the default pulls nowhere, while the authors' form still moves P by η α_k P where
the clip shortens the linear term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch

from undrift.contract.context import Message
from undrift.contract.parts import (
    Batch,
    Job,
    Objective,
    Range,
    Replies,
    Server,
    ServerUpdate,
    add_scaled,
    server_sum,
    stack_scaled,
)


@dataclass(frozen=True)
class FedDyn(Objective, ServerUpdate):
    alpha: Annotated[float, Range(above=0, most=1e6)] = 0.01
    cap: Annotated[float | None, Range(above=0)] = 10.0
    decay: bool = False

    lockstep: ClassVar = True
    linear: ClassVar = True

    def init_server(self, server: Server) -> dict[str, torch.Tensor]:
        return {"h": torch.zeros(server.plan.layout.nP), "evaluated": server.vector}

    def init_client(self, job: Job) -> torch.Tensor:
        return torch.zeros(job.plan.layout.nP)

    def before_training(self, job: Job, h: torch.Tensor, server_message: Message) -> tuple[float, torch.Tensor]:
        if self.cap is not None and self.relative(job) > self.cap:
            job.note("capped", self.proximal_strength(job))
        return self.proximal_strength(job), job.plan.layout.trainable(job.received) - h

    def gradient(
        self, P: torch.Tensor, G: torch.Tensor, batch: Batch, job: Job, scratch: tuple[float, torch.Tensor]
    ) -> None:
        strength, target = scratch
        add_scaled(G, -target if self.decay else P - target, strength)

    def after_clip(
        self, P: torch.Tensor, G: torch.Tensor, batch: Batch, job: Job, scratch: tuple[float, torch.Tensor]
    ) -> None:
        if self.decay:
            add_scaled(G, P, scratch[0])

    def stack_scratches(self, scratches: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        return stack_scaled(scratches)

    def proximal_strength(self, job: Job) -> float:
        """α_k."""
        return self.alpha * (self.relative(job) if self.cap is None else min(self.relative(job), self.cap))

    def relative(self, job: Job) -> float:
        """The mean client size divided by this client's size."""
        return job.plan.total / (job.plan.clients * job.n)

    def after_training(
        self, job: Job, scratch: tuple[float, torch.Tensor], h: torch.Tensor
    ) -> tuple[torch.Tensor, Message]:
        return h + job.plan.layout.trainable(job.trained - job.received), {}

    def step(self, server: Server, mixed: torch.Tensor, replies: Replies) -> torch.Tensor:
        trainable, share = server.plan.layout.trainable, 1 / server.plan.clients
        drifts = [trainable(vector - sent) for vector, sent in zip(replies.vectors, replies.sent)]
        h = server.memory["h"] + server_sum(drifts, share)
        server.memory = {"h": h, "evaluated": mixed}
        ahead = mixed.clone()
        trainable(ahead).add_(h)
        return ahead

    def evaluated(self, server: Server) -> torch.Tensor:
        evaluated: torch.Tensor = server.memory["evaluated"]
        return evaluated
