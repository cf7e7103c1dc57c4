"""Augmentation of training batches, vectorised: every image draws its own crop, flip and colours from one generator.

An augmentation is called with images (N, C, H, W) and a torch.Generator (keyed by client and round, so a resumed run
draws the same) and returns new images. It expects images in 0…1. `around` applies it to standardised batches, where
black is not 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

from undrift.core.errors import BadRequest
from undrift.federation.environment.domains import luminance

__all__ = ["compose", "crop", "flip", "jitter"]


class Augment(Protocol):
    def __call__(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor: ...


@dataclass(frozen=True)
class Crop:
    """Pad by `pad` black pixels and crop the old size at a random place, for each image with probability `p`."""

    pad: int = 4
    p: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.pad, bool) or not isinstance(self.pad, int) or self.pad < 0:
            raise BadRequest(f"pad of crop must be a whole number of at least 0, not {self.pad!r}")
        _probability("crop", self.p)

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a padding that leaves hardly any image (C, H, W) in a crop."""
        side = min(shape[1:])
        if self.pad > side:
            raise BadRequest(
                f"crop({self.pad:,}) pads images of {'×'.join(map(str, shape[1:]))} by more than their side, so most crops "
                f"are black; use at most crop({side})"
            )

    def __call__(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        n, _, h, w = images.shape
        # The offset `pad` is no shift: it replaces the draw for images that are not cropped.
        offsets = torch.randint(2 * self.pad + 1, (2, n), generator=generator)
        if self.p < 1:
            offsets[:, torch.rand(n, generator=generator) >= self.p] = self.pad
        padded = functional.pad(images, (self.pad,) * 4)
        rows = (offsets[0][:, None] + torch.arange(h)).to(images.device)
        columns = (offsets[1][:, None] + torch.arange(w)).to(images.device)
        which = torch.arange(n, device=images.device)[:, None, None]
        return padded[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


@dataclass(frozen=True)
class Flip:
    """Flip horizontally, each image with probability `p`."""

    p: float = 0.5

    def __post_init__(self) -> None:
        _probability("flip", self.p)

    def __call__(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        chosen = (torch.rand(len(images), generator=generator) < self.p).to(images.device)
        return torch.where(chosen.view(-1, 1, 1, 1), images.flip(3), images)


@dataclass(frozen=True)
class Jitter:
    """Brightness, then contrast, then saturation, each times a factor uniform in 1 ± its strength, clipped to 0…1.

    Contrast interpolates to the image's mean luminance, saturation to each pixel's (no effect on grey images).
    """

    brightness: float = 0.2
    contrast: float = 0.2
    saturation: float = 0.2

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
                raise BadRequest(f"{name} of jitter must be between 0 and 1, not {value!r}")

    def __call__(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        draws = (2 * torch.rand(3, len(images), generator=generator) - 1).to(images)
        strengths = (self.brightness, self.contrast, self.saturation)
        bright, contrast, colour = (
            (1 + strength * draw).view(-1, 1, 1, 1) for strength, draw in zip(strengths, draws, strict=True)
        )
        images = (images * bright).clamp(0, 1)
        images = torch.lerp(luminance(images).mean((2, 3), keepdim=True), images, contrast).clamp(0, 1)
        return torch.lerp(luminance(images).expand_as(images), images, colour).clamp(0, 1)


@dataclass(frozen=True)
class Compose:
    """Augmentations one after the other, as `crop+flip` in text."""

    steps: Sequence[Augment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))

    def __call__(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        for step in self.steps:
            images = step(images, generator)
        return images


@dataclass(frozen=True)
class Around:
    """An augmentation of standardised batches: back to 0…1, augment, standardise again."""

    augment: Augment
    mean: Sequence[float]
    std: Sequence[float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", tuple(map(float, self.mean)))
        object.__setattr__(self, "std", tuple(map(float, self.std)))

    def __call__(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        mean, std = (torch.tensor(values).to(images).view(1, -1, 1, 1) for values in (self.mean, self.std))
        return (self.augment(images * std + mean, generator) - mean) / std


crop, flip, jitter, compose, around = Crop, Flip, Jitter, Compose, Around


def _probability(name: str, p: object) -> None:
    if not isinstance(p, int | float) or isinstance(p, bool) or not math.isfinite(p) or not 0 <= p <= 1:
        raise BadRequest(f"p of {name} must be between 0 and 1, not {p!r}")
