"""The loss around the evaluated model along two random directions, after the last round (FLOOD, Fig 6; Li et al., 2018).

A direction is drawn at random and *filter-normalised*: every filter (row of a weight) gets the length of the model's own
filter, so that the picture does not depend on the scale of the weights; biases and normalisation parameters stay where
they are. The picture {"steps": […], "loss": [[…]]} holds the mean loss on a seeded sample of the test set, the middle cell
being the model itself. `sharpness_rise`: how much the loss rises on average on the rim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from undrift.contract.client_data import eval_logits
from undrift.core.errors import BadRequest
from undrift.core.streams import torch_stream
from undrift.core.vector import Layout
from undrift.evaluate.diagnose.base import Ask, Diagnostic, Findings, RoundView, loaded, piece
from undrift.round.orders import Order

if TYPE_CHECKING:
    from undrift.round.runtime import Runtime


@dataclass(frozen=True)
class Landscape(Diagnostic):
    points: int = 11  # per direction; odd, so that the model itself is one of them
    radius: float = 1.0
    samples: int = 1000
    name = "landscape"
    at_the_end = True

    def __post_init__(self) -> None:
        if self.points < 3 or self.points % 2 == 0:
            raise BadRequest(f"landscape: points must be an odd number of at least 3, not {self.points}")
        if not self.radius > 0:
            raise BadRequest(f"landscape: radius must be above 0, not {self.radius}")
        if self.samples < 1:
            raise BadRequest(f"landscape: samples must be at least 1, not {self.samples}")

    def check(self, runtime: Runtime) -> None:
        if not any(is_weight(entry) for entry in runtime.plan.layout.entries):
            raise BadRequest(
                "landscape: this model has no trainable weight with filters (two dimensions or more), so "
                "there is no direction to walk in; leave it out"
            )

    def steps(self) -> torch.Tensor:
        half = self.points // 2
        return torch.arange(-half, half + 1) * (self.radius / half)

    def observe(self, view: RoundView, found: Findings, ask: Ask) -> None:
        orders = [piece(view, row, view.after.evaluated) for row in range(self.points)]
        loss = [one["loss"] for one in ask(orders)]
        found.picture("surface", {"steps": self.steps().tolist(), "loss": loss})
        grid = torch.tensor(loss, dtype=torch.float64)
        rim = torch.ones_like(grid, dtype=torch.bool)
        rim[1:-1, 1:-1] = False
        middle = grid[self.points // 2, self.points // 2]
        found.number("sharpness_rise", grid[rim].mean() - middle, data="global")

    def work(self, runtime: Runtime, order: Order) -> dict[str, Any]:
        """One row of the grid."""
        layout, steps = runtime.plan.layout, self.steps()
        across, along = (
            direction(layout, order.vector, torch_stream(runtime.plan.seed, f"landscape {n}")) for n in (1, 2)
        )
        size = len(runtime.federation.test_y)
        drawn = (
            torch.randperm(size, generator=torch_stream(runtime.plan.seed, "landscape"))[: self.samples].sort().values
        )
        x, y = (
            rows.to(runtime.model.device)
            for rows in (runtime.federation.test_x[drawn], runtime.federation.test_y[drawn])
        )
        flat = loaded(runtime, order)
        losses = []
        for step in steps:
            flat.vector.copy_(order.vector + steps[order.span[1]] * across + step * along)
            losses.append(runtime.sample_loss(eval_logits(flat, x, runtime.network_input)[0], y).double().mean().item())
        return {"loss": losses}


def is_weight(entry: Any) -> bool:
    return entry.kind == "parameter" and len(entry.shape) > 1


def direction(layout: Layout, vector: torch.Tensor, stream: torch.Generator) -> torch.Tensor:
    """A random direction along the vector, every filter as long as the model's own."""
    way = torch.zeros(layout.n)
    for entry in layout.entries:
        if is_weight(entry):
            drawn = torch.randn(entry.shape, generator=stream).flatten(1)
            own = vector[entry.place].view(entry.shape).cpu().flatten(1)
            length = drawn.norm(dim=1, keepdim=True).clamp(min=1e-12)
            way[entry.place] = (drawn / length * own.norm(dim=1, keepdim=True)).flatten()
    return way.to(vector.device)
