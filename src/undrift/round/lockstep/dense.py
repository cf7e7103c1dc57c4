"""Linear layers and ReLU with their backward pass written out: the same products and the same bits as autograd's, without
its bookkeeping, which for small networks costs as much as the products."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from undrift.core.vector import Flat
from undrift.round.lockstep.linear import outputs, weight_gradient
from undrift.round.lockstep.network import Leaves, chain

Step = tuple[str, int, int | None]  # "linear" with the places of its weight and bias, or "relu", or "flatten"


class Dense:
    """forward, then backward, of one stack of batches. Tensors are [clients, outputs, rows] inside. `samples`: the rows of
    a batch that count, where fewer than all do."""

    def __init__(self, steps: list[Step], samples: int | None = None) -> None:
        self.steps, self.samples = steps, samples
        self.saved: list[torch.Tensor] = []  # what entered each step, and what the last one gave

    def forward(self, leaves: Leaves, x: torch.Tensor) -> torch.Tensor:
        """Logits [clients, classes, rows] of x [clients, rows, …]."""
        h = x.flatten(2).transpose(1, 2)
        self.saved = [h]
        for kind, weight, bias in self.steps:
            if kind == "linear":
                h = outputs(h, leaves[weight], None if bias is None else leaves[bias])
            elif kind == "relu":
                h = torch.relu(h)
            self.saved.append(h)
        return h

    def backward(self, leaves: Leaves, g: torch.Tensor, filled_up: bool = False) -> list[torch.Tensor]:
        """Every parameter's gradient, from that of the logits. `filled_up`: with the outputs that a product is filled up
        with, whose gradient is 0."""
        grads: list[Any] = [None] * len(leaves)
        first = next(number for number, (kind, _, _) in enumerate(self.steps) if kind == "linear")
        for number in range(len(self.steps) - 1, first - 1, -1):
            kind, weight, bias = self.steps[number]
            if kind == "relu":
                g = torch.ops.aten.threshold_backward(g, self.saved[number + 1], 0)
            elif kind == "linear":
                grads[weight] = weight_gradient(g, self.saved[number], self.samples, filled_up)
                if bias is not None:
                    grads[bias] = g.sum(2)
                if number > first:
                    g = torch.bmm(leaves[weight].transpose(1, 2), g)
        self.saved = []
        return grads


def dense_network(flat: Flat, samples: int | None = None) -> Dense | None:
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
    return Dense(steps, samples) if sorted(used) == list(range(len(flat.parameters))) else None


def losses(logits: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probabilities [clients, classes, rows], cross-entropy [clients, rows])."""
    found = torch.log_softmax(logits, 1)
    return found, cross_entropy(found, y)


def cross_entropy(log_probabilities: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """[clients, rows]"""
    return log_probabilities.gather(1, y.unsqueeze(1)).squeeze(1).neg_()


def logits_gradient(log_probabilities: torch.Tensor, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """d Σ weights · cross-entropy / d logits."""
    chosen = torch.zeros_like(log_probabilities).scatter_(1, y.unsqueeze(1), -weights.unsqueeze(1))
    return through_softmax(chosen, log_probabilities)


def through_softmax(chosen: torch.Tensor, log_probabilities: torch.Tensor) -> torch.Tensor:
    """The gradient along the logits from that along the log-probabilities, by the kernel that autograd calls."""
    found: torch.Tensor = torch._log_softmax_backward_data(chosen, log_probabilities, 1, torch.float32)
    return found
