"""FLIU: every client keeps an individual mix of its own and the global model.

Hussaini, Theiß, Stein: Local Performance vs. Out-of-Distribution Generalization, 2025.

    on receipt   θ_k ← γ_k θ_k + (1 − γ_k) Θ        then local training continues from there

γ grows with the client's share of the data: a client with many samples trusts its own model. γ = 0 is FedAvg with the
same weights. γ = 1 is local training under full participation (a client that participates for the first time takes Θ).
The inequalities are strict: with exactly equal shares every client gets 0.25. The paper's algorithm averages uniformly,
its equation by size. The weighting decides that (`fliu` prefers uniform; `fliu@size` averages by size).

`shuffle` is a control: every client uses the γ of another one, by a permutation drawn once. The server knows a client's
size after its first reply. Until then a client uses its own γ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch

from undrift.contract.context import Message
from undrift.contract.declare import Declaration, Number
from undrift.contract.parts import Job, Personalize, Plan, Range, Replies, Server, Tree
from undrift.core.errors import BadRequest

STEPS = ((10.0, 0.9), (5.0, 0.75), (1.0, 0.5), (0.5, 0.25), (0.0, 0.1))  # (share over the mean share, γ)


@dataclass(frozen=True)
class Fliu(Personalize):
    gamma: Annotated[float | None, Range(least=0, most=1)] = None
    steps: tuple[tuple[float, float], ...] = STEPS
    shuffle: bool = False

    def validate(self) -> None:
        if not all(isinstance(step, tuple) and len(step) == 2 and 0 <= step[1] <= 1 for step in self.steps):
            raise BadRequest(f"fliu: steps must be pairs [threshold, γ between 0 and 1], not {self.steps}")
        thresholds = [least for least, _ in self.steps]
        if not thresholds or thresholds[-1] != 0 or thresholds != sorted(set(thresholds), reverse=True):
            raise BadRequest(f"fliu: the thresholds of steps must decrease and end at 0, not be {thresholds}")

    @property
    def downlink(self) -> Declaration:
        return {"gamma": Number()} if self.shuffle else {}

    def init_server(self, server: Server) -> Tree:
        if not self.shuffle:
            return None
        N = server.plan.clients
        return {"of": torch.randperm(N, generator=server.stream("shuffle")), "sizes": torch.zeros(N, dtype=torch.long)}

    def message_for(self, server: Server, client: int) -> Message:
        size = int(server.memory["sizes"][server.memory["of"][client]]) if self.shuffle else 0
        return {"gamma": self.share_of_self(size, server.plan)} if size else {}

    @property
    def linear(self) -> bool:
        return not self.shuffle

    def receive(self, server: Server, replies: Replies) -> None:
        if self.shuffle:
            sizes = server.memory["sizes"].clone()
            sizes[torch.tensor(replies.ids)] = torch.tensor(replies.n)
            server.memory = {**server.memory, "sizes": sizes}

    def init_client(self, job: Job) -> torch.Tensor:
        return job.received

    def before_start(self, job: Job, own: torch.Tensor, server_message: Message) -> torch.Tensor:
        gamma = server_message.get("gamma", self.share_of_self(job.n, job.plan))
        job.note("gamma", gamma)
        mixed = torch.lerp(job.received, own, gamma)
        return torch.where(own == job.received, own, mixed)  # a buffer may hold ±inf by design

    def start(self, job: Job, mixed: torch.Tensor) -> torch.Tensor:
        return mixed

    def after_training(self, job: Job, mixed: torch.Tensor, own: torch.Tensor) -> tuple[torch.Tensor, Message]:
        return job.trained, {}

    def share_of_self(self, n: int, plan: Plan) -> float:
        """γ of a client with n samples."""
        if self.gamma is not None:
            return float(self.gamma)
        relative = n * plan.clients / plan.total
        return next(gamma for least, gamma in self.steps if relative > least)
