"""The coordinate-wise median of the clients' updates.

Yin et al.: Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, ICML 2018.

    θ ← θ + median_k Δ_k, coordinate by coordinate; for an even number the mean of the two in the middle

Any minority of clients may send anything: every coordinate stays within the range of the other clients. The price is
efficiency: on skewed labels the rows of a class that few clients have hardly move. Weights are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from undrift.contract.parts import Combine, Plan, Problem, Replies, Server
from undrift.methods.combine._points import need, per_coordinate

LEAST = 3


@dataclass(frozen=True)
class Median(Combine):
    ignores_weights: ClassVar = True

    def check(self, plan: Plan) -> Iterable[Problem]:
        if plan.cohort is not None and plan.cohort < LEAST:
            yield Problem("error", f"median needs a cohort of at least {LEAST}; this run has {plan.cohort:g}")

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        need(replies, LEAST, self.name)
        return per_coordinate(server, replies, middle)


def middle(points: torch.Tensor) -> torch.Tensor:
    m, ordered = len(points), points.sort(0).values
    return (ordered[(m - 1) // 2] + ordered[m // 2]) / 2
