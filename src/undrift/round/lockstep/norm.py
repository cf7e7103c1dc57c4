"""BatchNorm of all clients of a stack at once: each client's features are normalised by its own batch.

Inside, features come before samples: [clients, features, rows]. `share` [clients, rows] is the weight of every sample in its
batch's mean, 0 for rows that only fill it up. Written out, because PyTorch's own layer cannot leave rows out. Only additions,
products, quotients and roots are used, one at a time: they round alike wherever a client lies in the stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from undrift.round.lockstep.leaves import Leaves


@dataclass(frozen=True)
class Norm:
    """A layer: where its parameters and statistics are among the leaves."""

    weight: int | None
    bias: int | None
    mean: int
    variance: int
    eps: float
    momentum: float

    def trained(
        self, leaves: Leaves, h: torch.Tensor, share: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(outputs, normalised inputs, 1 / deviation); the statistics move."""
        weights = share.unsqueeze(1)
        mean = (h * weights).sum(2)
        centred = h - mean.unsqueeze(2)
        variance = (centred * centred * weights).sum(2)
        scale = (variance + self.eps).sqrt().reciprocal().unsqueeze(2)
        normal = centred * scale
        # The statistics take the variance of a sample: k / (k - 1) times that of the batch; share is 1 / k.
        variance = variance / (1 - share[:, :1])
        for place, new in ((self.mean, mean), (self.variance, variance)):
            leaves[place].mul_(1 - self.momentum).add_(new.mul_(self.momentum))
        return self.affine(leaves, normal), normal, scale

    def evaluated(self, leaves: Leaves, h: torch.Tensor) -> torch.Tensor:
        """Outputs by the statistics."""
        scale = (leaves[self.variance] + self.eps).sqrt().reciprocal()
        return self.affine(leaves, (h - leaves[self.mean].unsqueeze(2)) * scale.unsqueeze(2))

    def affine(self, leaves: Leaves, normal: torch.Tensor) -> torch.Tensor:
        out = normal if self.weight is None else normal * leaves[self.weight].unsqueeze(2)
        return out if self.bias is None else out + leaves[self.bias].unsqueeze(2)


def through_norm(
    g: torch.Tensor, normal: torch.Tensor, scale: torch.Tensor, weight: torch.Tensor | None, share: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients along the inputs, the weight and the bias."""
    along_weight, along_bias = (g * normal).sum(2), g.sum(2)
    inner, outer = along_bias.unsqueeze(2), along_weight.unsqueeze(2)
    if weight is not None:
        w = weight.unsqueeze(2)
        g, inner, outer = g * w, inner * w, outer * w
    return (g - (inner + normal * outer) * share.unsqueeze(1)) * scale, along_weight, along_bias


class StackedNorm(torch.autograd.Function):
    """h [c, rows, features] -> the same shape, while training."""

    @staticmethod
    def forward(
        ctx: Any, norm: Norm, leaves: Any, share: torch.Tensor, h: torch.Tensor, weight: Any, bias: Any
    ) -> torch.Tensor:
        out, normal, scale = norm.trained(leaves, h.transpose(1, 2), share)
        ctx.save_for_backward(normal, scale, share, weight)
        ctx.biased = bias is not None
        return out.transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        normal, scale, share, weight = ctx.saved_tensors
        g = grads[0].transpose(1, 2).contiguous()
        along, along_weight, along_bias = through_norm(g, normal, scale, weight, share)
        ours = along_weight if weight is not None else None, along_bias if ctx.biased else None
        return None, None, None, along.transpose(1, 2), *ours


def norm_of(module: nn.BatchNorm1d, places: dict[int, int]) -> Norm | None:
    """The layer in this form; None where it keeps no statistics, or their plain mean."""
    if module.running_mean is None or module.running_var is None or module.momentum is None:
        return None
    weight, bias = (None if one is None else places[id(one)] for one in (module.weight, module.bias))
    return Norm(
        weight, bias, places[id(module.running_mean)], places[id(module.running_var)], module.eps, module.momentum
    )
