"""The trimmed mean: the smallest and largest updates are removed, coordinate by coordinate.

Yin et al.: Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, ICML 2018.

    θ ← θ + mean of Δ_k without the ⌊β m⌋ smallest and the ⌊β m⌋ largest, coordinate by coordinate

It tolerates ⌊β m⌋ clients that send anything. Weights are ignored. The trap: if β m < 1 no client is removed, and the
rule would be the plain uniform mean. Such a round is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from undrift.contract.parts import Combine, Plan, Problem, Range, Replies, Server
from undrift.methods.combine._points import need, per_coordinate


@dataclass(frozen=True)
class Trimmed(Combine):
    share: Annotated[float, Range(least=0, below=0.5)] = 0.2  # β, removed at each end

    ignores_weights: ClassVar = True

    def check(self, plan: Plan) -> Iterable[Problem]:
        if plan.cohort is not None and self.share and not self.cut(plan.cohort):
            yield Problem(
                "error",
                f"trimmed removes a share of {self.share} at each end, which is no client in a cohort "
                f"of {plan.cohort:g}; it needs at least {self.least} clients",
            )

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        if self.share:
            need(replies, self.least, self.name)
        cut = self.cut(len(replies))
        return per_coordinate(server, replies, lambda points: without_ends(points, cut))

    @property
    def least(self) -> int:
        """The fewest clients of which one is removed at each end."""
        return math.ceil(1 / self.share - 1e-9)

    def cut(self, clients: float) -> int:
        return math.floor(self.share * clients + 1e-9)


def without_ends(points: torch.Tensor, cut: int) -> torch.Tensor:
    return points.sort(0).values[cut : len(points) - cut].mean(0)
