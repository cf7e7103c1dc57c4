"""FLIU's objective Σ (n_k/n)(F_k(θ_k) + F_k(Θ)) over the round's participants: θ_k is what a client holds when the round
is over (L1), Θ the judged model, F_k the loss on the client's training data. For a plain method θ_k = Θ, and the
objective is twice the training loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from undrift.evaluate.diagnose.base import Ask, Diagnostic, Findings, Happened
from undrift.evaluate.judge import mixed_logits
from undrift.orders import Order

if TYPE_CHECKING:
    from undrift.site import Site


@dataclass(frozen=True)
class Objective(Diagnostic):
    name = "objective"

    def look(self, seen: Happened, found: Findings, ask: Ask) -> None:
        answered = {reply.client for reply in seen.answers}
        world, orders = seen.after, []
        for order in seen.orders:
            if order.client in answered:
                orders.append(replace(
                    order, round=world.round, vector=world.judged, integers=world.integers, told=seen.told(order.client),
                    state_round=world.versions.get(("state", order.client)), keep_round=None, budget=None,
                ))  # fmt: skip
        parts = ask(orders)
        total = sum(one["n"] for one in parts)
        if not total:
            return
        for order, one in zip(orders, parts):
            found.number("loss", one["own"], order.client, "L1")
        found.number("objective", sum(one["n"] * (one["own"] + one["shared"]) for one in parts) / total)

    def work(self, site: Site, order: Order) -> dict[str, Any]:
        from undrift.local import Round

        work = Round(site, order)
        work.prepare()
        x, y = work.desk.x, work.desk.y

        def loss(mixture: Any) -> float:
            return site.loss(mixed_logits(site, mixture, order.integers, x), y.cpu()).double().mean().item()

        plain = work.personal is None and site.plan.private is None
        shared = loss([(1.0, order.vector)])
        return {"n": len(y), "own": shared if plain else loss(work.mixture(work.start)), "shared": shared}
