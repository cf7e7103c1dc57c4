"""Linear layers and ReLU with their backward pass written out: the same products and the same bits as autograd's, without
its bookkeeping, which for small networks costs as much as the products."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from undrift.core.vector import Flat
from undrift.round.lockstep.network import Leaves, chain, weight_gradient

Step = tuple[str, int, int | None]  # "linear" with the places of its weight and bias, or "relu", or "flatten"


class Dense:
    """forward, then backward, of one stack of batches."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.saved: list[torch.Tensor] = []  # what entered each step

    def forward(self, leaves: Leaves, x: torch.Tensor) -> torch.Tensor:
        self.saved = []
        for kind, weight, bias in self.steps:
            self.saved.append(x)
            if kind == "linear":
                W = leaves[weight].transpose(1, 2)
                x = torch.bmm(x, W) if bias is None else torch.baddbmm(leaves[bias].unsqueeze(1), x, W)
            else:
                x = torch.relu(x) if kind == "relu" else x.flatten(2)
        return x

    def backward(self, leaves: Leaves, g: torch.Tensor) -> list[torch.Tensor]:
        """Every parameter's gradient, from that of the logits."""
        grads: list[Any] = [None] * len(leaves)
        first = next(number for number, (kind, _, _) in enumerate(self.steps) if kind == "linear")
        for number in range(len(self.steps) - 1, first - 1, -1):
            kind, weight, bias = self.steps[number]
            x = self.saved[number]
            if kind == "relu":
                g = torch.ops.aten.threshold_backward(g, x, 0)
            elif kind == "linear":
                grads[weight] = weight_gradient(g, x)
                if bias is not None:
                    grads[bias] = g.sum(1)
                if number > first:
                    g = torch.bmm(g, leaves[weight])
        self.saved = []
        return grads


def dense_network(flat: Flat) -> Dense | None:
    """The network in this form; None where it has another layer, a parameter twice or an activation of more axes."""
    places = {id(parameter): place for place, parameter in enumerate(flat.parameters)}
    steps: list[Step] = []
    for _, module in chain("", flat.module):
        if type(module) is nn.Linear:
            bias = None if module.bias is None else places[id(module.bias)]
            steps.append(("linear", places[id(module.weight)], bias))
        elif type(module) is nn.ReLU:
            steps.append(("relu", -1, None))
        elif type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            if any(kind == "linear" for kind, _, _ in steps):
                return None
            steps.append(("flatten", -1, None))
        elif type(module) is not nn.Identity:
            return None
    used = [place for kind, *ours in steps if kind == "linear" for place in ours if place is not None]
    return Dense(steps) if sorted(used) == list(range(len(flat.parameters))) else None


def logits_gradient(log_probabilities: torch.Tensor, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """d Σ weights · cross-entropy / d logits, by the kernel that autograd calls."""
    chosen = torch.zeros_like(log_probabilities).scatter_(1, y.unsqueeze(1), -weights.unsqueeze(1))
    found: torch.Tensor = torch.ops.aten._log_softmax_backward_data(chosen, log_probabilities, 1, torch.float32)
    return found


def losses(logits: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probabilities, cross-entropy per sample) of [samples, classes]."""
    found = torch.log_softmax(logits, 1)
    return found, F.nll_loss(found, y, reduction="none")
