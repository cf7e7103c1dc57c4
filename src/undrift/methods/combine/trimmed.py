"""The trimmed mean: per coordinate, the smallest and the largest are cut away (Yin et al., ICML 2018).

    θ ← θ + mean of Δ_k without the ⌊β m⌋ smallest and the ⌊β m⌋ largest, coordinate by coordinate

It withstands ⌊β m⌋ clients that send anything. Weights play no role. The trap: where β m < 1 nobody is cut, and the
rule is the plain uniform mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from undrift.contract.parts import Combine, Plan, Problem, Replies, Server
from undrift.core.errors import BadRequest
from undrift.methods.combine._points import per_coordinate


@dataclass(frozen=True)
class Trimmed(Combine):
    share: float = 0.2  # β, cut at each end

    ignores_weights: ClassVar = True

    def __post_init__(self) -> None:
        if not 0 <= self.share < 0.5:
            raise BadRequest(f"trimmed: share must be at least 0 and below 0.5, not {self.share}")

    def check(self, plan: Plan) -> Iterable[Problem]:
        if plan.cohort is not None and self.share and not self.cut(plan.cohort):
            yield Problem("error", f"trimmed cuts a share of {self.share} at each end, which is nobody in a cohort of "
                          f"{plan.cohort:g}; it needs at least {math.ceil(1 / self.share - 1e-9)} clients")  # fmt: skip

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        cut = self.cut(len(replies))
        if self.share and not cut:
            server.note("fallback", f"nobody is cut of {len(replies)} clients: the uniform mean")
        return per_coordinate(server, replies, lambda points: without_ends(points, cut))

    def cut(self, clients: float) -> int:
        return math.floor(self.share * clients + 1e-9)


def without_ends(points: torch.Tensor, cut: int) -> torch.Tensor:
    return points.sort(0).values[cut : len(points) - cut].mean(0)
