"""FedProx: a pull towards the received model in local training.

Li et al.: Federated Optimization in Heterogeneous Networks, MLSys 2020.

    local loss + (μ/2) ‖P − P_received‖²        so each step uses g + μ (P − P_received)

The term is written as a gradient, so μ = 0 is FedAvg bit for bit. The trap: the reference must be a detached copy of
what was received. FedDecorr's FedProx takes the parameters of the network in training, so its penalty is identically
zero.

`adaptive`: μ starts at `mu`. It grows by 0.1 whenever the cohort's training loss (weighted by size) is above that of
the previous round. After five decreases in a row it shrinks by 0.1, not below 0, and the count of decreases starts
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch

from undrift.contract.context import Message
from undrift.contract.declare import Declaration, Number
from undrift.contract.parts import (
    Batch,
    Job,
    Objective,
    Plan,
    Problem,
    Range,
    Replies,
    Server,
    Tree,
    add_scaled,
    stack_scaled,
)

STEP, PATIENCE = 0.1, 5


@dataclass(frozen=True)
class FedProx(Objective):
    mu: Annotated[float, Range(least=0)] = 0.01
    adaptive: bool = False

    lockstep: ClassVar = True

    @property
    def downlink(self) -> Declaration:
        return {"mu": Number()} if self.adaptive else {}

    def check(self, plan: Plan) -> Iterable[Problem]:
        dependent = [part.name for part in plan.method.parts if "effective_steps" in part.needs]
        if self.adaptive and dependent:
            yield Problem(
                "error",
                f"{dependent[0]} needs the normalised step count, which does not follow fedprox's adaptive mu; "
                "use a fixed mu",
            )

    def init_server(self, server: Server) -> Tree:
        return {"mu": float(self.mu), "loss": None, "falls": 0} if self.adaptive else None

    def broadcast(self, server: Server) -> Message:
        return {"mu": server.memory["mu"]} if self.adaptive else {}

    def before_training(self, job: Job, state: Any, server_message: Message) -> tuple[float, torch.Tensor]:
        return server_message.get("mu", self.mu), job.plan.layout.trainable(job.received)

    def gradient(
        self, P: torch.Tensor, G: torch.Tensor, batch: Batch, job: Job, scratch: tuple[float, torch.Tensor]
    ) -> None:
        mu, reference = scratch
        add_scaled(G, P - reference, mu)

    def stack_scratches(self, scratches: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        return stack_scaled(scratches)

    def proximal_strength(self, job: Job) -> float:
        return self.mu

    @property
    def linear(self) -> bool:
        return not self.adaptive

    def receive(self, server: Server, replies: Replies) -> None:
        if not self.adaptive:
            return
        mu, before, falls = server.memory["mu"], server.memory["loss"], server.memory["falls"]
        loss = sum(n * value for n, value in zip(replies.n, replies.loss)) / sum(replies.n)
        server.note("mu", mu)
        falls = falls + 1 if before is not None and loss < before else 0
        if before is not None and loss > before:
            mu += STEP
        elif falls == PATIENCE:
            mu, falls = max(0.0, mu - STEP), 0
        server.memory = {"mu": mu, "loss": loss, "falls": falls}
