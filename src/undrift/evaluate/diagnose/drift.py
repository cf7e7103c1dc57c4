"""How far clients drift, and in which direction: `drift` = ‖θ_k − θ^t‖ along the parameters, from the model the client was
sent, and `drift_cosine` = cos(θ_k − θ^t, Σ p_j (θ_j − θ^t)): 1 if all clients move the same way, 0 if at right angles."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from undrift.evaluate.diagnose.base import Ask, Diagnostic, Findings, RoundView
from undrift.evaluate.diagnose.gradients import cosine
from undrift.round.orders import Order


@dataclass(frozen=True)
class Drift(Diagnostic):
    name = "drift"

    def observe(self, view: RoundView, found: Findings, ask: Ask) -> None:
        nP, pairs = view.plan.layout.nP, view.trained()

        def way(sent: Order, trained: Order) -> torch.Tensor:
            return trained.vector[:nP].double() - sent.vector[:nP]

        mean = torch.zeros(nP, dtype=torch.float64)
        for sent, trained in pairs:
            mean += view.weights.get(sent.client, 0.0) * way(sent, trained)
        for sent, trained in pairs:
            found.number("drift", way(sent, trained).norm(), sent.client, "L2")
            found.number("drift_cosine", cosine(way(sent, trained), mean), sent.client, "L2")
