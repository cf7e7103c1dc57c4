"""FLIU's objective Σ (n_k/n)(F_k(θ_k) + F_k(Θ)) over the round's participants: θ_k is what a client uses when the round
is over (L1), Θ the evaluated model, F_k the loss on the client's training data. For a plain method θ_k = Θ, and the
objective is twice the training loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from undrift.evaluate.client import mixed_logits
from undrift.evaluate.diagnose.base import Ask, Diagnostic, Findings, RoundView
from undrift.evaluate.orders import of_personal_models
from undrift.round.orders import Order

if TYPE_CHECKING:
    from undrift.round.runtime import Runtime


@dataclass(frozen=True)
class Objective(Diagnostic):
    name = "objective"

    def observe(self, view: RoundView, found: Findings, ask: Ask) -> None:
        answered = {reply.client for reply in view.answers}
        messages = {order.client: view.messages_for(order.client) for order in view.orders if order.client in answered}
        orders = of_personal_models(view.after, messages, evaluate_on=())
        parts = ask(orders)
        total = sum(one["n"] for one in parts)
        if not total:
            return
        for order, one in zip(orders, parts):
            found.number("loss", one["own"], order.client, "L1")
        found.number("objective", sum(one["n"] * (one["own"] + one["shared"]) for one in parts) / total)

    def work(self, runtime: Runtime, order: Order) -> dict[str, Any]:
        from undrift.round.client import ClientRound

        work = ClientRound(runtime, order)
        work.prepare()
        x, y = work.data.x, work.data.y

        def loss(mixture: Any) -> float:
            return (
                runtime.sample_loss(mixed_logits(runtime, mixture, order.integers, x), y.cpu()).double().mean().item()
            )

        plain = work.personalize is None and runtime.plan.private is None
        shared = loss([(1.0, order.vector)])
        return {"n": len(y), "own": shared if plain else loss(work.mixture(work.start)), "shared": shared}
