"""Residual networks (He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", 2016): a wide and a thin
ResNet-8, ResNet-20, ResNet-18 and ResNet-50.

Every shortcut that changes the shape is a 1×1 convolution with norm. FLOOD, whose ResNet-8 is wide, is
Ling et al., "Adaptive Dual-Weighting Framework for Federated Learning via Out-of-Distribution Detection".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import nn

from undrift.core.errors import BadRequest
from undrift.models._layers import Shape, channels_and_side, check_norm, norm_layer

Block = Callable[[int, int, int, str], tuple[nn.Module, int]]
Stages = tuple[tuple[int, int], ...]


class Residual(nn.Module):
    """ReLU(x + body(x)), or ReLU(shortcut(x) + body(x)) if the shape changes."""

    def __init__(self, body: nn.Sequential, shortcut: nn.Sequential | None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut if shortcut is not None else nn.Identity()
        self.activation = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.activation(self.body(x) + self.shortcut(x))
        return out


def _convolution(before: int, filters: int, kernel: int, norm: str, stride: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(before, filters, kernel, stride=stride, padding=kernel // 2, bias=False)
    return [conv, norm_layer(norm, filters)]


def basic(before: int, filters: int, stride: int, norm: str) -> tuple[nn.Module, int]:
    """Two 3×3 convolutions. Returns the block and its number of output channels."""
    body = [*_convolution(before, filters, 3, norm, stride), nn.ReLU(), *_convolution(filters, filters, 3, norm)]
    changes = stride != 1 or before != filters
    shortcut = nn.Sequential(*_convolution(before, filters, 1, norm, stride)) if changes else None
    return Residual(nn.Sequential(*body), shortcut), filters


def bottleneck(before: int, filters: int, stride: int, norm: str) -> tuple[nn.Module, int]:
    """1×1, 3×3 (which has the stride) and 1×1 to four times the filters. Returns the same as `basic`."""
    wide = 4 * filters
    body = [
        *_convolution(before, filters, 1, norm), nn.ReLU(),
        *_convolution(filters, filters, 3, norm, stride), nn.ReLU(),
        *_convolution(filters, wide, 1, norm),
    ]  # fmt: skip
    changes = stride != 1 or before != wide
    shortcut = nn.Sequential(*_convolution(before, wide, 1, norm, stride)) if changes else None
    return Residual(nn.Sequential(*body), shortcut), wide


def _network(
    name: str, shape: Shape, classes: int, norm: str, stem: str, first: int, stages: Stages, block: Block = basic
) -> nn.Module:
    """Stem, stages of (filters, blocks), average pool, head. Every stage but the first halves the side."""
    check_norm(name, norm)
    channels, _, _ = channels_and_side(name, shape)
    if stem == "cifar":
        start: list[nn.Module] = [*_convolution(channels, first, 3, norm), nn.ReLU()]
    elif stem == "imagenet":
        start = [*_convolution(channels, first, 7, norm, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    else:
        raise BadRequest(f"stem of {name} must be imagenet or cifar, not {stem!r}")
    layers: dict[str, nn.Module] = {"stem": nn.Sequential(*start)}
    before = first
    for number, (filters, blocks) in enumerate(stages):
        stage = []
        for index in range(blocks):
            made, before = block(before, filters, 2 if number and not index else 1, norm)
            stage.append(made)
        layers[f"stage{number + 1}"] = nn.Sequential(*stage)
    layers |= {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "head": nn.Linear(before, classes)}
    return nn.Sequential(OrderedDict(layers))


def resnet8(shape: Shape, classes: int, norm: str = "batch") -> nn.Module:
    """FLOOD's wide ResNet-8, 128/256/512: 4,896,394 parameters with ten classes. The CIFAR ResNet-8 is resnet8-thin."""
    return _network("resnet8", shape, classes, norm, "cifar", 128, ((128, 1), (256, 1), (512, 1)))


def resnet8_thin(shape: Shape, classes: int, norm: str = "batch", width: int = 16, stem: str = "cifar") -> nn.Module:
    """The CIFAR ResNet of He et al. with 8 layers: 16/32/64, one block each; `width` is the first of these. With
    stem="imagenet" it takes a seventh of the time."""
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise BadRequest(f"width of resnet8-thin must be a whole number of at least 1, not {width!r}")
    return _network("resnet8-thin", shape, classes, norm, stem, width, ((width, 1), (2 * width, 1), (4 * width, 1)))


def resnet20(shape: Shape, classes: int, norm: str = "batch") -> nn.Module:
    """The CIFAR ResNet of He et al. with 20 layers: 16/32/64, three blocks each."""
    return _network("resnet20", shape, classes, norm, "cifar", 16, ((16, 3), (32, 3), (64, 3)))


def resnet18(shape: Shape, classes: int, norm: str = "batch", stem: str = "imagenet") -> nn.Module:
    """The ImageNet ResNet-18 of He et al., with the 7×7 stem of stride 2 and the pool. stem="cifar" keeps small images
    large."""
    return _network("resnet18", shape, classes, norm, stem, 64, ((64, 2), (128, 2), (256, 2), (512, 2)))


def resnet50(shape: Shape, classes: int, norm: str = "batch", stem: str = "imagenet") -> nn.Module:
    """The ImageNet ResNet-50 of He et al.: as resnet18, with bottleneck blocks."""
    stages = ((64, 3), (128, 4), (256, 6), (512, 3))
    return _network("resnet50", shape, classes, norm, stem, 64, stages, bottleneck)
