"""MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018) as in FLOOD's code: stem
of stride 1, convolutions with bias, global max pooling.

FLOOD is Ling et al., "Adaptive Dual-Weighting Framework for Federated Learning via Out-of-Distribution Detection".
"""

from __future__ import annotations

import torch
from torch import nn

from undrift.models._layers import Shape, channels_and_side, check_norm, norm_layer

# expansion, channels, blocks, stride of the first block
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class Inverted(nn.Module):
    """Inverted residual: widen (1×1), depthwise 3×3, narrow (1×1, no activation). x is added if the shapes agree."""

    def __init__(self, before: int, after: int, stride: int, expansion: int, norm: str) -> None:
        super().__init__()
        wide = before * expansion
        self.body = nn.Sequential(
            nn.Conv2d(before, wide, 1), norm_layer(norm, wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride=stride, padding=1, groups=wide), norm_layer(norm, wide), nn.ReLU6(),
            nn.Conv2d(wide, after, 1), norm_layer(norm, after),
        )  # fmt: skip
        self.adds = stride == 1 and before == after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.body(x)
        return x + out if self.adds else out


def mobilenetv2(shape: Shape, classes: int, norm: str = "batch") -> nn.Module:
    """MobileNetV2: 2,254,858 parameters with ten classes. The 1×1 classifier over pooled maps is a linear layer."""
    check_norm("mobilenetv2", norm)
    channels, _, _ = channels_and_side("mobilenetv2", shape)
    layers: list[nn.Module] = [nn.Conv2d(channels, 32, 3, padding=1), norm_layer(norm, 32), nn.ReLU6()]
    before = 32
    for expansion, filters, blocks, stride in STAGES:
        for index in range(blocks):
            layers.append(Inverted(before, filters, stride if index == 0 else 1, expansion, norm))
            before = filters
    return nn.Sequential(
        *layers,
        nn.Conv2d(before, 1280, 1), norm_layer(norm, 1280), nn.ReLU6(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(1280, classes),
    )  # fmt: skip
