"""InCo: the updates of deep layers are corrected by a shallow layer of the same stage.

Chan et al.: Internal Cross-layer Gradients for Extending Homogeneity to Heterogeneity in Federated Learning, ICLR 2024.

In every residual stage g₀ is the update of the last 3×3 convolution of block 0, g that of a 3×3 convolution of a later
block with the same shape. For every kernel (3×3 slice)

    θ = min(|⟨g₀, g⟩| / (‖g₀‖² + ε), 5)        g′ = (g/(‖g‖+ε) + θ g₀/(‖g₀‖+ε)) (‖g‖ + ‖g₀‖)/2, entries within ±0.1

and g′ replaces g. Everything else is the uniform mean. Blocks are recognised by their names (`stage.1.…`), stages by
the prefix before the block's number. The trap: on a network without repeated blocks (plain CNNs, ResNet-8) InCo *is*
uniform averaging, and a warning says so. The paper's θ distinguishes the sign. The authors' code takes the absolute
value, as does this part. For bottleneck blocks, which the paper does not have, the single 3×3 convolutions are paired.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from undrift.contract.parts import Combine, Plan, Problem, Replies, Server, server_sum
from undrift.core.vector import Entry, Layout

BLOCK = re.compile(r"(?P<stage>.+?)\.(?P<number>\d+)\.(?P<rest>.+)")
EPS, STEEPEST, LARGEST = 1e-7, 5.0, 0.1


@dataclass(frozen=True)
class InCo(Combine):
    ignores_weights: ClassVar = True

    def check(self, plan: Plan) -> Iterable[Problem]:
        if not pairs(plan.layout):
            yield Problem(
                "warning",
                "inco finds no stage with several 3×3 convolutions of one shape in this model, so "
                "it is uniform averaging here",
            )

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        mixed = server_sum(replies.vectors, 1 / len(replies))
        sent = server_sum(replies.sent, 1 / len(replies))
        out = mixed.clone()
        for shallow, deep in pairs(server.plan.layout):
            g0, g = ((mixed[entry.place] - sent[entry.place]).view(-1, 9) for entry in (shallow, deep))
            out[deep.place] = sent[deep.place] + corrected(g0, g).flatten()
        return out


def corrected(g0: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """g′, with one kernel per row."""
    n0, n = g0.norm(dim=1, keepdim=True), g.norm(dim=1, keepdim=True)
    theta = ((g0 * g).sum(1, keepdim=True).abs() / (n0**2 + EPS)).clamp(max=STEEPEST)
    new: torch.Tensor = (g / (n + EPS) + theta * g0 / (n0 + EPS)) * (n + n0) / 2
    return new.clamp(-LARGEST, LARGEST)


def pairs(layout: Layout) -> list[tuple[Entry, Entry]]:
    """(reference, convolution to correct) of all stages, in order of execution."""
    stages: dict[str, list[tuple[int, Entry]]] = {}
    for name, kind in layout.modules:
        block = BLOCK.fullmatch(name)
        if block is not None and kind == "Conv2d":
            weight = layout.entry(f"{name}.weight")
            if weight.shape[2:] == (3, 3) and weight.kind == "parameter":
                stages.setdefault(block["stage"], []).append((int(block["number"]), weight))
    found = []
    for convolutions in stages.values():
        first = [weight for number, weight in convolutions if number == 0]
        if first:
            found += [(first[-1], w) for number, w in convolutions if number > 0 and w.shape == first[-1].shape]
    return found
