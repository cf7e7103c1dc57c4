"""The memory layout of images. No other module decides it, and no other data have one.

A federation stores images as height × width × channels. A network gets channels first. This only changes the strides,
so convolutions get channels-last input at no cost, also for one-channel images. Tables are not changed.
"""

from __future__ import annotations

from typing import Any

import torch

from undrift.core import samples


def stored(x: Any) -> Any:
    """Samples as a federation stores them, from channels-first images, images without a channel axis, or rows. Whole
    numbers are no images."""
    if not isinstance(x, torch.Tensor):
        return x.each(stored) if isinstance(x, samples.Columns) else x
    if not x.is_floating_point():
        return x.contiguous()
    if x.dim() == 3:
        x = x[:, None]
    return x.permute(0, 2, 3, 1).contiguous() if x.dim() == 4 else x.contiguous()


def network_input(x: Any) -> Any:
    """Stored samples as a network takes them: sequences padded to the longest."""
    if isinstance(x, torch.Tensor):
        return x.permute(0, 3, 1, 2) if x.dim() == 4 and x.is_floating_point() else x
    return x.each(network_input) if isinstance(x, samples.Columns) else x.padded()


def is_image(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dim() == 4 and x.is_floating_point()


def sample_shape(x: Any) -> Any:
    """The shape of one sample as a network sees it; of columns one shape by name."""
    if isinstance(x, samples.Columns):
        return {name: sample_shape(column) for name, column in x.items()}
    shape: tuple[int, ...] = samples.shape(x)
    return (shape[2], shape[0], shape[1]) if is_image(x) else shape
