"""FedNova: averaging normalised by the number of local steps.

Wang et al.: Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, NeurIPS 2020.

    θ ← θ + (Σ_k p_k a_k) Σ_k p_k (θ_k − θ) / a_k        on P; F by the plain mean

A client that made more steps does not pull harder. a_k is the *normalised* step count: with momentum or a proximal term
one gradient moves the model more or less than once. FLOOD's and FedDisco's code take ⌊En/B⌋ steps (the true count is
E⌈n/B⌉), and divide running statistics by a_k as well, which is correct only if all a_k are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from undrift.contract.parts import Combine, Plan, Problem, Replies, Server, defines, server_sum


@dataclass(frozen=True)
class FedNova(Combine):
    needs: ClassVar = ("effective_steps",)

    def check(self, plan: Plan) -> Iterable[Problem]:
        personal, server = plan.method.one("personalize"), plan.method.one("server")
        if plan.method.moves_start:
            yield Problem(
                "error",
                f"fednova divides a client's change by its steps, and {personal.name} moves the "
                "start, so steps alone do not explain the change; use one of the two",
            )
        if defines(server, "model_for"):
            yield Problem(
                "error",
                f"fednova adds changes to one model, and {server.name} sends every client "
                "another one; use one of the two",
            )

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        trainable = server.plan.layout.trainable
        a = [float(count or 0) for count in replies.effective_steps]
        steps = sum(p * count for p, count in zip(weights, a))
        factors = [p * steps / count for p, count in zip(weights, a)]
        ends, begins = [trainable(v) for v in replies.vectors], [trainable(v) for v in replies.sent]
        mixed = server_sum(replies.vectors, weights)
        trainable(mixed).copy_(
            server_sum([trainable(server.vector), *ends, *begins], [1.0, *factors, *(-factor for factor in factors)])
        )
        server.note("steps", steps)
        return mixed
