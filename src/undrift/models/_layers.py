"""What the networks share: the norm layer and the arithmetic of shapes."""

from __future__ import annotations

import math

from torch import nn

from undrift.core.errors import BadRequest

Shape = tuple[int, ...]


class Misfit(Exception):
    """The network does not fit the shape. `build` turns this into a message that names the models that fit."""


def norm_layer(norm: str | None, channels: int, dimensions: int = 2) -> nn.Module:
    """BatchNorm, or GroupNorm with groups of at least 16 channels. Both have 2 · channels parameters.

    The 16 is needed because a group of one channel would normalise a 1×1 map to zero.
    """
    if norm is None:
        return nn.Identity()
    if norm == "batch":
        return nn.BatchNorm2d(channels) if dimensions == 2 else nn.BatchNorm1d(channels)
    if norm == "group":
        groups = next(g for g in range(max(1, channels // 16), 0, -1) if channels % g == 0)
        return nn.GroupNorm(groups, channels)
    raise BadRequest(f"norm of a model must be batch or group (or none where it is optional), not {norm!r}")


def check_norm(model: str, norm: str | None, optional: bool = False) -> str | None:
    """The norm's name, or None for no norm (`none` in text) if the model allows that."""
    if optional and norm in (None, "none"):
        return None
    if norm not in ("batch", "group"):
        raise BadRequest(f"norm of {model} must be batch or group{' or none' * optional}, not {norm!r}")
    return norm


def channels_and_side(model: str, shape: Shape) -> tuple[int, int, int]:
    """(channels, height, width) of an image shape."""
    if len(shape) != 3:
        raise Misfit(f"{model} needs images (channels, height, width)")
    return shape[0], shape[1], shape[2]


def after(side: int, kernel: int, padding: int = 0, stride: int = 1) -> int:
    """The side of a feature map after a convolution or a pooling. A side below 1 is a misfit."""
    new = (side + 2 * padding - kernel) // stride + 1
    if new < 1:
        raise Misfit("the maps vanish")
    return new


def entries(shape: Shape) -> int:
    """How many numbers a sample has."""
    return math.prod(shape)


def whole(model: str, name: str, value: object) -> None:
    """Refuse an option that is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequest(f"{name} of {model} must be a whole number of at least 1, not {value!r}")
