"""A network for pictures in and pictures out: one logit per class and pixel."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from undrift.models._layers import Misfit, Shape, channels_and_side, check_norm, norm_layer, whole


class Unet(nn.Module):
    def __init__(self, channels: int, classes: int, width: int, depth: int, norm: str | None) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        before = [channels, *widths[:-1]]
        self.down = nn.ModuleList(_twice(a, b, norm) for a, b in zip(before, widths, strict=True))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
        self.up = nn.ModuleList(_twice(2 * b, b, norm) for _, b in pairs)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept: list[torch.Tensor] = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            kept.append(x)
        kept.pop()
        for enlarge, block in zip(self.enlarge, self.up, strict=True):
            beside, x = kept.pop(), enlarge(x)
            # An odd side loses its last row or column in the pooling: it comes back as zeros.
            missing = [beside.shape[axis] - x.shape[axis] for axis in (3, 2)]
            x = block(torch.cat([beside, F.pad(x, (0, missing[0], 0, missing[1]))], dim=1))
        logits: torch.Tensor = self.head(x)
        return logits


def unet(shape: Shape, classes: int, width: int = 16, depth: int = 2, norm: str = "batch") -> nn.Module:
    """A small U-Net (Ronneberger, Fischer and Brox, "U-Net: Convolutional Networks for Biomedical Image Segmentation"):
    pairs of 3×3 convolutions, `depth` times halved and doubled, joined across. The norms and the padding that keeps the
    size are ours. 31,030,658 parameters with width 64, depth 4, no norm, one channel and two classes."""
    channels, height, side = channels_and_side("unet", shape)
    norm_of = check_norm("unet", norm, optional=True)
    whole("unet", "width", width)
    whole("unet", "depth", depth)
    if min(height, side) < 2**depth:
        raise Misfit("the maps vanish")
    return Unet(channels, classes, width, depth, norm_of)


def _twice(before: int, filters: int, norm: str | None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (before, filters):
        layers += [nn.Conv2d(channels, filters, 3, padding=1), norm_layer(norm, filters), nn.ReLU()]
    return nn.Sequential(*layers)
