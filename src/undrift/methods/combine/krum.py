"""Krum: of all updates the one that has the nearest neighbours (Blanchard et al., NeurIPS 2017).

    score_k = Σ of the squared distances to the m − f − 2 nearest others        θ ← θ_k with the smallest score

`multi=True` (multi-Krum) takes the uniform mean of the m − f best instead. It withstands f clients that send anything,
and needs m ≥ 2f + 3. Weights play no role. The trap: on skewed data the client most like the others is one client all
the same, and Krum throws the work of everybody else away. Distances are over the whole vector, as statistics can be
poisoned too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from undrift.contract.parts import Combine, Plan, Problem, Replies, Server
from undrift.core.errors import BadRequest
from undrift.methods.combine._points import distances, mixture, too_few


@dataclass(frozen=True)
class Krum(Combine):
    f: int = 1
    multi: bool = False

    ignores_weights: ClassVar = True

    def __post_init__(self) -> None:
        if self.f < 0:
            raise BadRequest(f"krum: f must be at least 0, not {self.f}")

    def check(self, plan: Plan) -> Iterable[Problem]:
        if plan.cohort is not None and plan.cohort < self.least:
            yield Problem("error", f"krum with f = {self.f} needs a cohort of at least 2f + 3 = {self.least} clients, "
                          f"and this run has {plan.cohort:g}")  # fmt: skip

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        mean = too_few(server, replies, weights, self.least, self.name)
        if mean is not None:
            return mean
        best = ranked(distances(server, replies), self.f)[: len(replies) - self.f if self.multi else 1]
        shares = [1 / len(best) if k in best else 0.0 for k in range(len(replies))]
        for client, share in zip(replies.ids, shares):
            server.note("weight", share, client=client)
        return mixture(server, replies, shares)

    @property
    def least(self) -> int:
        return 2 * self.f + 3


def ranked(square: torch.Tensor, f: int) -> list[int]:
    """Positions by score, the best first; of equals the first."""
    m = len(square)
    nearest = square.sort(1).values[:, 1 : m - f - 1]  # column 0 is the distance to itself
    return nearest.sum(1).argsort(stable=True).tolist()
