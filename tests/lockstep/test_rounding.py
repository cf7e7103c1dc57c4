"""A client's logits, losses and gradients have the same bits in every stack and at every place of it."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from undrift.core.determinism import one_thread
from undrift.core.vector import Flat
from undrift.round.lockstep.dense import dense_network, logits_gradient, losses
from undrift.round.lockstep.leaves import Unstackable, leaves_of
from undrift.round.lockstep.linear import rounded
from undrift.round.lockstep.network import Products, aligned_rows

CLIENTS = 9
WIDTHS = (2, 3, 4, 5, 7, 8, 13, 17, 20, 33, 50, 64, 100, 127)


def network(draw: random.Random) -> tuple[Flat, int]:
    widths = [draw.choice(WIDTHS) for _ in range(draw.choice((2, 3, 4)))]
    kind = draw.choice((nn.ReLU, nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU))
    normal = draw.random() < 0.4
    layers = [
        layer
        for a, b in pairwise(widths)
        for layer in (nn.Linear(a, b, bias=draw.random() < 0.8), *[nn.BatchNorm1d(b)] * normal, kind())
    ]
    return Flat(nn.Sequential(*layers[:-1]), torch.zeros(2, widths[0])), widths[0]


@pytest.mark.parametrize("seed", range(12))
def test_bits_do_not_depend_on_place_or_company(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    flat, wide = network(draw)
    batch = draw.choice((2, 4, 9, 10, 16, 32) if flat.layout.n > flat.layout.nP else (1, 4, 9, 10, 16, 32))
    rows = aligned_rows(flat, torch.zeros(2, wide), batch)
    P = torch.zeros(CLIENTS, rounded(flat.layout.nP))
    P[:, : flat.layout.nP] = 0.3 * torch.randn(CLIENTS, flat.layout.nP)
    statistics = torch.rand(CLIENTS, flat.layout.n - flat.layout.nP)
    x = torch.randn(CLIENTS, rows, wide)
    classes = flat(x[0]).size(1)
    y = torch.randint(0, classes, (CLIENTS, rows))
    share = (torch.arange(rows) < batch).float().div(batch).expand(CLIENTS, -1)
    stacked, dense = Products(flat, batch), dense_network(flat, batch)

    def computed(some: slice) -> list[torch.Tensor]:
        mine, labels, weights = P[some].clone(), y[some], share[some]
        moved = statistics[some].clone()
        leaves = leaves_of(flat.layout, mine, moved)
        logits = stacked(leaves, x[some].clone(), weights)
        loss = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        grads = torch.autograd.grad(loss, leaves[: len(flat.parameters)], weights)
        if dense is not None:  # written out: the bits of autograd
            with torch.no_grad():
                begun = statistics[some].clone()
                own = leaves_of(flat.layout, mine, begun)
                layers = dense.bind(own)
                again = layers.forward(x[some].clone(), weights)
                assert torch.equal(begun, moved)
                found, per_sample = losses(again, labels)
                assert torch.equal(again.transpose(1, 2), logits)
                assert torch.equal(per_sample, loss)
                g = logits_gradient(found, labels, weights)
                assert all(torch.equal(*two) for two in zip(layers.backward(g), grads))
        return [logits.detach(), loss.detach(), moved, *grads]

    with one_thread():
        together = computed(slice(0, CLIENTS))
        for some in (slice(0, 1), slice(3, 4), slice(8, 9), slice(1, 3), slice(2, 9)):
            assert all(torch.equal(all_of_them[some], few) for all_of_them, few in zip(together, computed(some)))


def test_a_layer_of_one_output_is_refused():
    with pytest.raises(Unstackable, match=r"the module Linear \(0\) has one input or output"):
        Products(Flat(nn.Sequential(nn.Linear(5, 1)), torch.zeros(2, 5)))
