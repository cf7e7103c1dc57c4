"""Linear layers, ReLU and BatchNorm with their backward pass written out: the same products and the same bits as autograd's, without
its bookkeeping, which for small networks costs as much as the products."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from undrift.core.vector import Flat
from undrift.round.lockstep.leaves import Leaves, places_of
from undrift.round.lockstep.linear import outputs, weight_gradient
from undrift.round.lockstep.network import chain
from undrift.round.lockstep.norm import Norm, norm_of, through_norm

Grads = list[torch.Tensor]
THROUGH_RELU = torch.ops.aten.threshold_backward.default


class LinearStep:
    """A linear layer. `samples`: the rows of a batch that count, where fewer than all do."""

    def __init__(self, weight: int, bias: int | None, samples: int | None, first: bool) -> None:
        self.weight, self.bias, self.samples, self.first = weight, bias, samples, first

    def forward(self, leaves: Leaves, h: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        self.x = h
        return outputs(h, leaves[self.weight], None if self.bias is None else leaves[self.bias])

    def backward(self, leaves: Leaves, g: torch.Tensor, grads: Grads, filled_up: bool) -> torch.Tensor:
        grads[self.weight] = weight_gradient(g, self.x, self.samples, filled_up)
        if self.bias is not None:
            grads[self.bias] = g.sum(2)
        return g if self.first else torch.bmm(leaves[self.weight].transpose(1, 2), g)


class ReLUStep:
    def forward(self, leaves: Leaves, h: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        self.out = torch.relu(h)
        return self.out

    def backward(self, leaves: Leaves, g: torch.Tensor, grads: Grads, filled_up: bool) -> torch.Tensor:
        return THROUGH_RELU(g, self.out, 0)  # type: ignore[no-any-return]


class NormStep:
    """BatchNorm by each client's own batch."""

    def __init__(self, norm: Norm) -> None:
        self.norm = norm

    def forward(self, leaves: Leaves, h: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        out, self.normal, self.scale = self.norm.trained(leaves, h, share)
        self.share = share
        return out

    def backward(self, leaves: Leaves, g: torch.Tensor, grads: Grads, filled_up: bool) -> torch.Tensor:
        norm = self.norm
        weight = None if norm.weight is None else leaves[norm.weight]
        g, along_weight, along_bias = through_norm(g, self.normal, self.scale, weight, self.share)
        for place, one in ((norm.weight, along_weight), (norm.bias, along_bias)):
            if place is not None:
                grads[place] = one
        return g


Step = LinearStep | ReLUStep | NormStep


class Dense:
    """forward, then backward, of one stack of batches. Tensors are [clients, outputs, rows] inside."""

    def __init__(self, steps: list[Step], parameters: int) -> None:
        self.steps, self.parameters = steps, parameters
        first = next(number for number, step in enumerate(steps) if isinstance(step, LinearStep))
        self.backwards = steps[: first - 1 if first else None : -1]

    def forward(self, leaves: Leaves, x: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        """Logits [clients, classes, rows] of x [clients, rows, …]."""
        h = x.flatten(2).transpose(1, 2)
        for step in self.steps:
            h = step.forward(leaves, h, share)
        return h

    def backward(self, leaves: Leaves, g: torch.Tensor, filled_up: bool = False) -> Grads:
        """Every parameter's gradient, from that of the logits. `filled_up`: with the outputs that a product is filled up
        with, whose gradient is 0."""
        grads: list[Any] = [None] * self.parameters
        for step in self.backwards:
            g = step.backward(leaves, g, grads, filled_up)
        return grads


def dense_network(flat: Flat, samples: int | None = None) -> Dense | None:
    """The network in this form; None where it has another layer, a parameter twice or an activation of more axes."""
    places = places_of(flat)
    steps: list[Step] = []
    used: list[int | None] = []
    for _, module in chain("", flat.module):
        if type(module) is nn.Linear:
            bias = None if module.bias is None else places[id(module.bias)]
            steps.append(LinearStep(places[id(module.weight)], bias, samples, first=not used))
            used += [places[id(module.weight)], bias]
        elif type(module) is nn.ReLU:
            steps.append(ReLUStep())
        elif type(module) is nn.BatchNorm1d and used and (norm := norm_of(module, places)) is not None:
            steps.append(NormStep(norm))
            used += [norm.weight, norm.bias]
        elif type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            if used:
                return None
        elif type(module) is not nn.Identity:
            return None
    known = sorted(place for place in used if place is not None)
    return Dense(steps, len(known)) if known == list(range(len(flat.parameters))) else None


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
