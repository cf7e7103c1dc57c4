"""One or several numbers per sample: mse, mae or huber loss; RMSE, MAE, R².

    ŷ = center + scale · output        loss on (y − center)/scale        RMSE and MAE in the units of y

The trap: a network starts near 0. Targets around 150 need center and scale, or thousands of steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch

from undrift.contract.parameters import Range
from undrift.contract.task import Task
from undrift.core.errors import BadRequest

Loss = Literal["mse", "mae", "huber"]


def regression(
    loss: Loss = "mse", center: float = 0.0, scale: Annotated[float, Range(above=0)] = 1.0, *, outputs: int = 0
) -> Regression:
    """One or several numbers per sample. Predictions are center + scale · output."""
    return Regression(loss, center, scale, outputs=outputs)


@dataclass(frozen=True)
class Regression(Task):
    """y: [samples] or [samples, targets], from an output of the same shape ([samples, 1] for one target)."""

    headline = "rmse"
    least_loss = 0.0
    better = "lower"
    title = "RMSE"
    kind: Loss = "mse"  # a field `loss` would hide the hook
    center: float = 0.0
    scale: Annotated[float, Range(above=0)] = 1.0

    @property
    def spelled(self) -> str:
        return super().spelled.replace("kind=", "loss=", 1)

    def loss(self, output: torch.Tensor, y: Any) -> torch.Tensor:
        away = output.reshape(y.shape) - (y - self.center) / self.scale
        if self.kind == "mse":
            each = away.square()
        elif self.kind == "mae":
            each = away.abs()
        else:  # quadratic up to 1, linear beyond
            each = torch.where(away.abs() <= 1, 0.5 * away.square(), away.abs() - 0.5)
        return each.flatten(1).mean(1) if each.dim() > 1 else each

    def measure(self, output: torch.Tensor, y: Any) -> dict[str, float]:
        """rmse and mae over all targets; r2 where the targets differ."""
        y = y.double()
        away = self.predict(output.double()).reshape(y.shape) - y
        found = {"rmse": away.square().mean().sqrt().item(), "mae": away.abs().mean().item()}
        spread = (y - y.mean(0)).square().sum().item()
        return found | ({"r2": 1 - away.square().sum().item() / spread} if spread > 0 else {})

    def predict(self, output: torch.Tensor) -> torch.Tensor:
        return self.center + self.scale * output

    def count(self, y: Any) -> int:
        return int(y[0].numel()) if len(y) else 1

    def example(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        return torch.zeros(2, *shape), torch.zeros(2, self.outputs) if self.outputs > 1 else torch.zeros(2)

    def targets(self, x: Any, y: Any, who: str) -> Any:
        y = super().targets(x, y, who)
        if not isinstance(y, torch.Tensor) or y.dim() not in (1, 2):
            raise BadRequest(
                f"{who} has targets that are not numbers, one or several per sample; give (samples, targets)"
            )
        return y.float()

    def completed(self, own: Task) -> Task:
        """Centre and scale of the data, where none are said."""
        said = (self.center, self.scale) != (0.0, 1.0)
        return self if said or not isinstance(own, Regression) else replace(self, center=own.center, scale=own.scale)

    def in_range(self, y: Any, who: str) -> None:
        if self.count(y) != self.outputs:
            raise BadRequest(
                f"{who} has {self.count(y)} targets per sample, and the task has {self.outputs}; give as many"
            )

    def misfit(self, output: torch.Tensor, y: Any, data: str) -> str:
        if tuple(output.shape) in (tuple(y.shape), (len(y), self.outputs)):
            return ""
        return (
            f"returns an output of shape {tuple(output.shape)} for {data}; return one number per target, here "
            f"({len(y)}, {self.outputs})"
        )
