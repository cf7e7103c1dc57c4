"""Krum: the one update that has the nearest neighbours.

Blanchard et al.: Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, NeurIPS 2017.

    score_k = Σ of the squared distances to the m − f − 2 nearest others        θ ← θ_k with the smallest score

`multi=True` (multi-Krum) takes the uniform mean of the m − f best instead. Krum tolerates f clients that send anything
and needs m ≥ 2f + 3. Weights are ignored. The trap: on skewed data the most typical client is still a single client,
and Krum discards the work of all others. Distances are over the whole vector, as statistics can be poisoned too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from undrift.contract.parts import Combine, Plan, Problem, Range, Replies, Server
from undrift.methods.combine._points import distances, mixture, need


@dataclass(frozen=True)
class Krum(Combine):
    f: Annotated[int, Range(least=0)] = 1
    multi: bool = False

    ignores_weights: ClassVar = True

    def check(self, plan: Plan) -> Iterable[Problem]:
        if plan.cohort is not None and plan.cohort < self.least:
            yield Problem(
                "error",
                f"krum with f = {self.f} needs a cohort of at least 2f + 3 = {self.least} clients, "
                f"and this run has {plan.cohort:g}",
            )

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        need(replies, self.least, self.name)
        best = ranked(distances(server, replies), self.f)[: len(replies) - self.f if self.multi else 1]
        shares = [1 / len(best) if k in best else 0.0 for k in range(len(replies))]
        for client, share in zip(replies.ids, shares):
            server.note("weight", share, client=client)
        return mixture(server, replies, shares)

    @property
    def least(self) -> int:
        return 2 * self.f + 3


def ranked(square: torch.Tensor, f: int) -> list[int]:
    """Positions by score, best first. Ties keep their order."""
    m = len(square)
    nearest = square.sort(1).values[:, 1 : m - f - 1]  # column 0 is the distance to itself
    return nearest.sum(1).argsort(stable=True).tolist()
