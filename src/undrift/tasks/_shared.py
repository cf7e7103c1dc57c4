"""What tasks with several predictions per sample (tokens, pixels, labels) share."""

from __future__ import annotations

from typing import Any

import torch

from undrift.core import samples
from undrift.core.errors import BadRequest


def whole_numbers(y: Any, who: str, what: str) -> Any:
    """Refuse targets that are no whole numbers."""
    if isinstance(y, samples.Columns) or any(leaf.is_floating_point() for leaf in samples.leaves(y)):
        raise BadRequest(f"{who} has targets that are not whole numbers; number the {what} 0, 1, 2, …")
    return y


def outputs_misfit(output: torch.Tensor, wanted: tuple[int, ...], what: str, data: str, axis: int | None = None) -> str:
    """What is wrong with an output's shape. The axis of the classes, if one is named, may be longer than wanted."""
    shape = tuple(output.shape)
    fits = len(shape) == len(wanted) and all(
        size >= least if i == axis else size == least for i, (size, least) in enumerate(zip(shape, wanted))
    )
    return "" if fits else f"returns an output of shape {shape} for {data}; return {what}, here {wanted}"
