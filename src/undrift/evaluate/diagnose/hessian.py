"""Sharpness: `hessian_top`, the largest eigenvalue of the Hessian of the evaluated model's loss on a seeded sample of all clients'
training data, by power iteration with Hessian-vector products.

Power iteration finds the eigenvalue of largest *magnitude*; where that is negative, the iteration is repeated on H − λI,
whose largest magnitude is the distance to the top one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from undrift.contract.client_data import CHUNK
from undrift.core.errors import BadRequest
from undrift.core.streams import torch_stream
from undrift.evaluate.diagnose.base import Ask, Diagnostic, Findings, RoundView, loaded, piece, pooled
from undrift.round.orders import Order

if TYPE_CHECKING:
    from undrift.round.runtime import Runtime


@dataclass(frozen=True)
class Hessian(Diagnostic):
    samples: int = 1000
    steps: int = 50
    tolerance: float = 1e-3  # relative change of the eigenvalue at which to stop
    name = "hessian"

    def __post_init__(self) -> None:
        if self.samples < 1 or self.steps < 1 or not self.tolerance > 0:
            raise BadRequest(
                f"hessian: samples, steps and tolerance must be positive, not {self.samples}, {self.steps}, "
                f"{self.tolerance}"
            )

    def observe(self, view: RoundView, found: Findings, ask: Ask) -> None:
        (one,) = ask([piece(view, 0, view.after.evaluated)])
        found.number("hessian_top", one["top"])

    def work(self, runtime: Runtime, order: Order) -> dict[str, Any]:
        x, y = pooled(runtime, self.samples)
        flat = loaded(runtime, order)

        def product(v: torch.Tensor) -> torch.Tensor:
            """H v: the gradient of ⟨∇loss, v⟩."""
            total = torch.zeros_like(v)
            for at in range(0, len(y), CHUNK):
                place = slice(at, at + CHUNK)
                loss = runtime.sample_loss(flat(runtime.network_input(x[place])), y[place]).sum() / len(y)
                first = torch.autograd.grad(loss, flat.parameters, create_graph=True, allow_unused=True)
                along = [(g, w) for g, w in zip(first, flat.views(v)) if g is not None and g.requires_grad]
                if along:
                    inner = torch.stack([(g * w).sum() for g, w in along]).sum()
                    second = torch.autograd.grad(inner, flat.parameters, allow_unused=True)
                    total += torch.cat(
                        [(torch.zeros_like(p) if g is None else g).reshape(-1) for g, p in zip(second, flat.parameters)]
                    )
            return total

        start = torch.randn(flat.layout.nP, generator=torch_stream(runtime.plan.seed, "hessian")).to(flat.device)
        return {"top": top_eigenvalue(product, start, self.steps, self.tolerance)}


def top_eigenvalue(
    product: Callable[[torch.Tensor], torch.Tensor], start: torch.Tensor, steps: int = 50, tolerance: float = 1e-3
) -> float:
    """The largest eigenvalue of a symmetric matrix given by its products."""
    largest = power_iteration(product, start, steps, tolerance)
    if largest >= 0:
        return largest
    return largest + power_iteration(lambda v: product(v) - largest * v, start, steps, tolerance)


def power_iteration(
    product: Callable[[torch.Tensor], torch.Tensor], start: torch.Tensor, steps: int, tolerance: float
) -> float:
    v, value = start / start.norm(), 0.0
    for _ in range(steps):
        w = product(v)
        before, value = value, (v @ w).item()
        length = w.norm()
        if length == 0 or abs(value - before) <= tolerance * abs(value):
            break
        v = w / length
    return value
