"""The clients' gradients at the model θ^t that the round began with.

    gradient_norm_squared   ‖∇F(θ^t)‖², F the loss on all clients' training data
    sampling_gap            δ: ‖∇L̃_k − ∇L_k‖ per client of the cohort, and the largest; L̃ is the loss under the method's
                            sample weights and picks, one threshold over the whole of the client's data
    sample_weight_min, max  the smallest and the largest weight of a sample
    cohort_gap              ε: ‖Σ p_k ∇L_k − ∇F‖ over the cohort, p the round's weights
    alignment               ⟨Σ p_k ∇L_k, ∇F⟩ / ‖∇F‖², what FedNolowe's theorem needs
    alignment_cosine        cos(Σ p_k ∇L_k, ∇F): the same without the lengths
    alignment_code          mean_k cos(g_k, Σ p_j g_j), what its code computes: one training batch of every client at its
                            *trained* model. Five orthogonal gradients of equal norm give 1/√5

With more than `most` clients, F is the loss of `most` clients drawn with a seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from undrift.contract.client_data import ClientData, eval_logits
from undrift.contract.context import Batch
from undrift.contract.parts import defines
from undrift.core.errors import BadRequest
from undrift.core.samples import padded
from undrift.core.streams import numpy_stream, torch_stream
from undrift.evaluate.diagnose.base import Ask, Diagnostic, Findings, RoundView, gradient, loaded
from undrift.round.orders import Order

if TYPE_CHECKING:
    from undrift.round.runtime import Runtime

WHOLE, ONE_BATCH = 0, 1
TOGETHER = 16  # gradients in memory at a time


@dataclass(frozen=True)
class Gradients(Diagnostic):
    most: int = 500  # clients over which F is taken
    name = "gradients"

    def __post_init__(self) -> None:
        if self.most < 1:
            raise BadRequest(f"gradients: most must be at least 1 client, not {self.most}")

    def observe(self, view: RoundView, found: Findings, ask: Ask) -> None:
        sizes = view.runtime.federation.sizes
        everybody = range(len(sizes))
        if len(sizes) > self.most:
            drawn = numpy_stream(view.plan.seed, "gradients").choice(len(sizes), self.most, replace=False)
            everybody = sorted(drawn.tolist())  # type: ignore[assignment]
        total = sum(int(sizes[client]) for client in everybody)
        cohort = {order.client: order for order in view.orders if order.client in view.weights}
        F = torch.zeros(view.plan.layout.nP, dtype=torch.float64)
        mixed = torch.zeros_like(F)
        gaps, least, most = list[float](), list[float](), list[float]()
        clients = sorted(set(everybody) | set(cohort))
        inside = set(everybody)
        for at in range(0, len(clients), TOGETHER):
            some = clients[at : at + TOGETHER]
            for client, one in zip(some, ask([self.order(view, client, cohort.get(client)) for client in some])):
                if client in inside:
                    F += int(sizes[client]) / total * one["gradient"]
                if client in cohort:
                    mixed += view.weights[client] * one["gradient"]
                    found.number("sampling_gap", one["gap"], client)
                    gaps, least, most = [*gaps, one["gap"]], [*least, one["least"]], [*most, one["most"]]
        norm = F.square().sum().item()
        found.number("gradient_norm_squared", norm)
        if gaps:
            found.number("sampling_gap", max(gaps))
            found.number("sample_weight_min", min(least))
            found.number("sample_weight_max", max(most))
            found.number("cohort_gap", (mixed - F).norm())
        if gaps and norm > 0:
            found.number("alignment", (mixed @ F).item() / norm)
            if (length := mixed.norm().item()) > 0:
                found.number("alignment_cosine", (mixed @ F).item() / length / norm**0.5)
        self.as_the_code_does(view, found, ask)

    def as_the_code_does(self, view: RoundView, found: Findings, ask: Ask) -> None:
        orders = [
            replace(order, span=(0, ONE_BATCH), size=1) for _, order in view.trained() if order.client in view.weights
        ]
        g = [one["gradient"] for one in ask(orders)]
        if g:
            mixed = torch.stack([view.weights[order.client] * v for order, v in zip(orders, g)]).sum(0)
            found.number("alignment_code", torch.stack([cosine(v, mixed) for v in g]).mean())

    def order(self, view: RoundView, client: int, own: Order | None) -> Order:
        """At θ^t; a client of the cohort gets the messages of the round, so that its samples get the same weights."""
        size = int(view.runtime.federation.sizes[client])
        if own is None:
            return Order("diagnose", view.round, client, view.before.vector, view.before.integers, size=size)
        return replace(
            own, vector=view.before.vector, integers=view.before.integers, span=(0, WHOLE), data="cohort", size=size
        )

    def work(self, runtime: Runtime, order: Order) -> dict[str, Any]:
        if order.span[1] == ONE_BATCH:
            x, y = runtime.train(order.client)
            some = torch.randperm(
                len(y), generator=torch_stream(runtime.plan.seed, "alignment", order.round, order.client)
            )
            some = some[: runtime.plan.batch]
            flat = loaded(runtime, order)
            if len(some) > 1 or not runtime.plan.layout.batchnorm_needs_two:
                flat.module.train()
            return {"gradient": gradient(runtime, flat, x[some], y[some])}
        weighing = [
            part
            for part in runtime.plan.method.parts
            if defines(part, "sample_weights") or defines(part, "epoch_indices")
        ]
        if order.data != "cohort" or not weighing:
            x, y = runtime.train(order.client)
            return {"gradient": gradient(runtime, loaded(runtime, order), x, y), "gap": 0.0, "least": 1.0, "most": 1.0}
        return weighed(runtime, order)


def weighed(runtime: Runtime, order: Order) -> dict[str, Any]:
    """The gradient of a client's loss with and without the method's sample weights and picks."""
    from undrift.round.client import ClientRound

    work = ClientRound(runtime, order)
    work.prepare()
    active = [one for one in work.parts if one.part.axis == "sampling"]
    for one in active:
        one.scratch = one.part.before_training(one.job, one.state, one.server_message)
    data: ClientData = work.data
    index = torch.arange(len(data.y))
    for one in active:
        if defines(one.part, "epoch_indices"):
            index = one.part.epoch_indices(one.job, one.scratch, 0)
    flat = runtime.spare(0)
    flat.load(work.received, order.integers)
    if runtime.wants("features"):
        flat.watch()
    logits, features = eval_logits(flat, data.x[index], runtime.network_input, runtime.wants("features"))
    batch = Batch(runtime.network_input(data.x[index]), padded(data.y[index]), index, flat.P, 0)
    batch.logits, batch.features = logits, features
    batch.head = flat.head if features is not None else None
    batch.loss = runtime.loss(logits, batch.y)
    weights = torch.ones(len(index))
    for one in active:
        if defines(one.part, "sample_weights"):
            weights = weights * one.part.sample_weights(batch, one.job, one.scratch)
    flat.load(work.received, order.integers)  # a part may have borrowed the network meanwhile
    flat.module.eval()
    plain = gradient(runtime, flat, data.x, data.y)
    tilted = gradient(runtime, flat, data.x[index], data.y[index], weights)
    return {
        "gradient": plain,
        "gap": (tilted - plain).norm().item(),
        "least": weights.min().item(),
        "most": weights.max().item(),
    }


def cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b / (a.norm() * b.norm()).clamp(min=1e-300)
