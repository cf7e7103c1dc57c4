"""Synthetic domains (feature skew): image transforms, as if another camera, scanner or pen had made the images.

A transform is called with images (N, C, H, W) in 0…1 and a generator. It returns new images of the same shape in 0…1.
Only `noisy` draws from the generator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from undrift.core.errors import BadRequest

__all__ = ["blurred", "edge", "grey", "identity", "inverted", "noisy", "rotated"]

LUMINANCE = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Identity:
    """A copy."""

    def __call__(self, images: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        return images.clone()


@dataclass(frozen=True)
class Grey:
    """Luminance on every channel. Grey images do not change."""

    def __call__(self, images: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        return luminance(images).expand_as(images).clone()


@dataclass(frozen=True)
class Inverted:
    """1 − x."""

    def __call__(self, images: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        return 1 - images


@dataclass(frozen=True)
class Blurred:
    """A Gaussian blur of `sigma` pixels. The border is replicated outwards, so edges do not darken."""

    sigma: float = 1.0

    def __post_init__(self) -> None:
        _positive("sigma of blurred", self.sigma)

    def __call__(self, images: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        reach = max(1, math.ceil(3 * self.sigma))
        offsets = torch.arange(-reach, reach + 1, dtype=images.dtype, device=images.device)
        kernel = torch.exp(-0.5 * (offsets / self.sigma) ** 2)
        kernel = kernel / kernel.sum()
        n, c, h, w = images.shape
        planes = functional.pad(images.reshape(n * c, 1, h, w), (reach,) * 4, mode="replicate")
        planes = functional.conv2d(planes, kernel.view(1, 1, 1, -1))
        return functional.conv2d(planes, kernel.view(1, 1, -1, 1)).reshape(n, c, h, w).clamp(0, 1)


@dataclass(frozen=True)
class Rotated:
    """Rotated by `degrees` counter-clockwise about the centre. Pixels from outside the image are black."""

    degrees: float = 45.0

    def __post_init__(self) -> None:
        if not isinstance(self.degrees, int | float) or not math.isfinite(self.degrees):
            raise BadRequest(f"degrees of rotated must be a finite number, not {self.degrees!r}")

    def __call__(self, images: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        n, c, h, w = images.shape
        if not n:  # grid_sample refuses an empty batch
            return images.clone()
        angle = math.radians(self.degrees)
        cos, sin = math.cos(angle), math.sin(angle)
        # The grid gives each target pixel's source in units of half a side. The ratios h/w and w/h keep it a rotation.
        turn = torch.tensor(
            [[cos, -sin * h / w, 0.0], [sin * w / h, cos, 0.0]], dtype=images.dtype, device=images.device
        )
        grid = functional.affine_grid(turn[None], [1, c, h, w], align_corners=False)
        return functional.grid_sample(images, grid.expand(n, h, w, 2), align_corners=False).clamp(0, 1)


@dataclass(frozen=True)
class Noisy:
    """Gaussian noise of standard deviation `std` on every pixel, clipped to 0…1."""

    std: float = 0.2

    def __post_init__(self) -> None:
        _positive("std of noisy", self.std)

    def __call__(self, images: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        noise = torch.randn(images.shape, generator=generator, dtype=images.dtype, device=images.device)
        return (images + self.std * noise).clamp(0, 1)


@dataclass(frozen=True)
class Edge:
    """The gradient magnitude (Sobel) of each channel, clipped to 0…1."""

    def __call__(self, images: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        n, c, h, w = images.shape
        across = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]], dtype=images.dtype) / 4
        kernels = torch.stack([across, across.T]).unsqueeze(1).to(images.device)
        planes = functional.pad(images.reshape(n * c, 1, h, w), (1,) * 4, mode="replicate")
        return functional.conv2d(planes, kernels).square().sum(1).sqrt().reshape(n, c, h, w).clamp(0, 1)


identity, grey, inverted, blurred, rotated, noisy, edge = Identity, Grey, Inverted, Blurred, Rotated, Noisy, Edge


def luminance(images: torch.Tensor) -> torch.Tensor:
    """(N, 1, H, W): the weighted sum of three channels, the mean of any other number."""
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    weights = torch.tensor(LUMINANCE, dtype=images.dtype, device=images.device).view(1, 3, 1, 1)
    return (images * weights).sum(1, keepdim=True)


def _positive(what: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        raise BadRequest(f"{what} must be a finite number above 0, not {value!r}")
