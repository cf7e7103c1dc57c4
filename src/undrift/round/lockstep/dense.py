"""Linear layers, ReLU and BatchNorm with their backward pass written out: the same products and the same bits as autograd's, without
its bookkeeping, which for small networks costs as much as the products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from undrift.core.vector import Flat
from undrift.round.lockstep.leaves import Leaves, places_of
from undrift.round.lockstep.linear import outputs, weight_gradient
from undrift.round.lockstep.network import chain
from undrift.round.lockstep.norm import Norm, norm_of, through_norm

Grads = list[torch.Tensor]
Places = Sequence[torch.Tensor]  # where the gradients go, one tensor per parameter
THROUGH_RELU = torch.ops.aten.threshold_backward.default


class Linear:
    """A linear layer: where its parameters are among the leaves. `samples`: the rows of a batch that count, where fewer than
    all do."""

    def __init__(self, weight: int, bias: int | None, samples: int | None, first: bool) -> None:
        self.weight, self.bias, self.samples, self.first = weight, bias, samples, first

    def bind(self, leaves: Leaves, into: Places | None) -> BoundLinear:
        return BoundLinear(self, leaves, into)


class BoundLinear:
    """The layer with the parameters of some clients."""

    def __init__(self, layer: Linear, leaves: Leaves, into: Places | None) -> None:
        self.layer, self.W = layer, leaves[layer.weight]
        self.W_T = self.W.transpose(1, 2)
        self.b = None if layer.bias is None else leaves[layer.bias].unsqueeze(2)
        self.grad_W = None if into is None else into[layer.weight]
        self.grad_b = None if into is None or layer.bias is None else into[layer.bias]

    def forward(self, h: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        self.x = h
        return outputs(h, self.W, self.b)

    def backward(self, g: torch.Tensor, grads: Grads) -> torch.Tensor:
        layer = self.layer
        grads[layer.weight] = weight_gradient(g, self.x, layer.samples, out=self.grad_W)
        if layer.bias is not None:
            grads[layer.bias] = torch.sum(g, 2) if self.grad_b is None else torch.sum(g, 2, out=self.grad_b)
        return g if layer.first else torch.bmm(self.W_T, g)


class ReLU:
    def bind(self, leaves: Leaves, into: Places | None) -> BoundReLU:
        return BoundReLU()


class BoundReLU:
    def forward(self, h: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        self.out = torch.relu(h)
        return self.out

    def backward(self, g: torch.Tensor, grads: Grads) -> torch.Tensor:
        return THROUGH_RELU(g, self.out, 0)  # type: ignore[no-any-return]


class BatchNorm:
    """BatchNorm by each client's own batch."""

    def __init__(self, norm: Norm) -> None:
        self.norm = norm

    def bind(self, leaves: Leaves, into: Places | None) -> BoundBatchNorm:
        return BoundBatchNorm(self.norm, leaves, into)


class BoundBatchNorm:
    def __init__(self, norm: Norm, leaves: Leaves, into: Places | None) -> None:
        self.norm, self.leaves, self.into = norm, leaves, into
        self.weight = None if norm.weight is None else leaves[norm.weight]

    def forward(self, h: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        out, self.normal, self.scale = self.norm.trained(self.leaves, h, share)
        self.share = share
        return out

    def backward(self, g: torch.Tensor, grads: Grads) -> torch.Tensor:
        g, *found = through_norm(g, self.normal, self.scale, self.weight, self.share)
        for place, one in zip((self.norm.weight, self.norm.bias), found):
            if place is not None:
                grads[place] = one if self.into is None else self.into[place].copy_(one)
        return g


Layer = Linear | ReLU | BatchNorm


class Dense:
    """A chain of such layers."""

    def __init__(self, layers: list[Layer], parameters: int, outputs: int) -> None:
        self.layers, self.parameters, self.outputs = layers, parameters, outputs

    def bind(self, leaves: Leaves, into: Places | None = None) -> BoundDense:
        """The network with the parameters of some clients. `into`: where the gradients go. A weight's tensor includes
        its padding outputs."""
        return BoundDense(self, leaves, into)


class BoundDense:
    """forward, then backward, of one stack of batches after the other. Tensors are [clients, outputs, rows] inside."""

    def __init__(self, network: Dense, leaves: Leaves, into: Places | None) -> None:
        self.parameters, self.layers = network.parameters, [layer.bind(leaves, into) for layer in network.layers]
        first = next(number for number, layer in enumerate(network.layers) if isinstance(layer, Linear))
        self.backwards = self.layers[: first - 1 if first else None : -1]

    def forward(self, x: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        """Logits [clients, classes, rows] of x [clients, rows, …]."""
        h = (x if x.dim() == 3 else x.flatten(2)).transpose(1, 2)
        for layer in self.layers:
            h = layer.forward(h, share)
        return h

    def backward(self, g: torch.Tensor) -> Grads:
        """Every parameter's gradient, from that of the logits."""
        grads: list[Any] = [None] * self.parameters
        for layer in self.backwards:
            g = layer.backward(g, grads)
        return grads


def dense_network(flat: Flat, samples: int | None = None) -> Dense | None:
    """The network in this form; None where it has another layer, a parameter twice or an activation of more axes."""
    places = places_of(flat)
    layers, outputs = list[Layer](), 0
    used: list[int | None] = []
    for _, module in chain("", flat.module):
        if type(module) is nn.Linear:
            bias, outputs = None if module.bias is None else places[id(module.bias)], module.out_features
            layers.append(Linear(places[id(module.weight)], bias, samples, first=not used))
            used += [places[id(module.weight)], bias]
        elif type(module) is nn.ReLU:
            layers.append(ReLU())
        elif type(module) is nn.BatchNorm1d and used and (norm := norm_of(module, places)) is not None:
            layers.append(BatchNorm(norm))
            used += [norm.weight, norm.bias]
        elif type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
            if used:
                return None
        elif type(module) is not nn.Identity:
            return None
    known = sorted(place for place in used if place is not None)
    return Dense(layers, len(known), outputs) if known == list(range(len(flat.parameters))) else None


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
