"""The memory layout of images. No other module decides it.

A federation stores images as height × width × channels. A network gets channels first. This only changes the strides,
so convolutions get channels-last input at no cost, also for one-channel images. Tables are not changed.
"""

from __future__ import annotations

import torch


def stored(x: torch.Tensor) -> torch.Tensor:
    """Samples as a federation stores them, from channels-first images, images without a channel axis, or rows."""
    if x.dim() == 3:
        x = x[:, None]
    return x.permute(0, 2, 3, 1).contiguous() if x.dim() == 4 else x.contiguous()


def network_input(x: torch.Tensor) -> torch.Tensor:
    """Stored samples as a network takes them."""
    return x.permute(0, 3, 1, 2) if x.dim() == 4 else x


def is_image(x: torch.Tensor) -> bool:
    return x.dim() == 4


def sample_shape(x: torch.Tensor) -> tuple[int, ...]:
    """The shape of one sample as a network sees it."""
    shape = tuple(x.shape[1:])
    return (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape
