"""One class per pixel: cross-entropy, mean IoU, Dice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from undrift.contract.task import Task
from undrift.core.errors import BadRequest
from undrift.tasks._shared import outputs_misfit, whole_numbers


@dataclass(frozen=True)
class Segmentation(Task):
    """y: a class per pixel [samples, height, width], from logits [samples, classes, height, width]. The loss of a sample is
    the mean over its pixels."""

    headline = "mean_iou"
    least_loss = 0.0
    better = "higher"
    title = "IoU"
    percent = True
    provides = ("class_logits", "errors")

    def loss(self, output: torch.Tensor, y: Any) -> torch.Tensor:
        return self.per_sample(F.cross_entropy(output, y, reduction="none"), y)

    def per_sample(self, values: torch.Tensor, y: Any) -> torch.Tensor:
        return values.flatten(1).mean(1)

    def class_logits(self, output: torch.Tensor) -> torch.Tensor:
        return output.movedim(1, -1)

    def measure(self, output: torch.Tensor, y: Any) -> dict[str, float]:
        """mean_iou and dice: per class over all pixels, then the mean over classes that occur or are predicted;
        pixel_accuracy."""
        guess, classes = output.argmax(1).clamp(max=self.outputs - 1), self.outputs
        table = (
            torch.bincount((y * classes + guess).flatten(), minlength=classes * classes).view(classes, classes).double()
        )
        hits, both = table.diagonal(), table.sum(0) + table.sum(1)
        there = both > 0
        return {
            "mean_iou": (hits[there] / (both - hits)[there]).mean().item(),
            "dice": (2 * hits[there] / both[there]).mean().item(),
            "pixel_accuracy": (hits.sum() / table.sum()).item(),
        }

    def predict(self, output: torch.Tensor) -> torch.Tensor:
        return output.argmax(1)

    def error(self, output: torch.Tensor, y: Any) -> torch.Tensor:
        return self.per_sample((output.argmax(1) != y).float(), y)

    def count(self, y: Any) -> int:
        return int(y.max()) + 1

    def example(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        return torch.zeros(2, *shape), torch.zeros(2, *shape[-2:], dtype=torch.long)

    def targets(self, x: Any, y: Any, who: str) -> Any:
        """`x` are channels-first images, or images without a channel axis."""
        y = whole_numbers(super().targets(x, y, who), who, "classes of pixels")
        if y.dim() != 3:
            raise BadRequest(
                f"{who} has masks of shape {tuple(y.shape[1:])}; give one class per pixel, (height, width)"
            )
        if len(shape := tuple(getattr(x, "shape", ()))) in (3, 4) and shape[-2:] != tuple(y.shape[-2:]):
            raise BadRequest(
                f"{who} has pictures of {'×'.join(map(str, shape[-2:]))} pixels and masks of "
                f"{'×'.join(map(str, y.shape[-2:]))}; bring them to one size"
            )
        return y

    def in_range(self, y: Any, who: str) -> None:
        if y.numel() and (y.min() < 0 or y.max() >= self.outputs):
            raise BadRequest(
                f"classes of pixels must lie in 0…{self.outputs - 1}; {who} has {int(y.min())} to {int(y.max())}"
            )

    def misfit(self, output: torch.Tensor, y: Any, data: str) -> str:
        wanted = (len(y), self.outputs, *y.shape[1:])
        return outputs_misfit(output, wanted, "the logits of all classes at every pixel", data, axis=1)
