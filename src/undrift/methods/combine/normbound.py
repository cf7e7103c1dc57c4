"""Norm bounding: no update may be longer than a bound, then the weighted mean (Sun et al., 2019).

    θ ← θ + Σ_k p_k Δ_k · min(1, c/‖Δ_k‖)        c given, or the median of the cohort's norms

It limits how far one client can drag the mean in a round; it does not find who is wrong. The norm is over the whole
vector, as BatchNorm statistics can be poisoned too, and a clipped statistic lies between what was sent and what came
back. The trap: a constant c that fits the first rounds no longer binds when honest updates have become short.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from undrift.contract.parts import Combine, Replies, Server, server_sum
from undrift.core.errors import BadRequest
from undrift.methods.combine._points import mixture


@dataclass(frozen=True)
class Normbound(Combine):
    bound: float | None = None  # None: the median norm of the round

    def __post_init__(self) -> None:
        if self.bound is not None and not 0 < self.bound < math.inf:
            raise BadRequest(f"normbound: bound must be above 0, not {self.bound}")

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        nP = server.plan.layout.nP
        norms = torch.stack([(new.double() - old.double()).norm() for new, old in zip(replies.vectors, replies.sent)])
        bound = norms.quantile(0.5).item() if self.bound is None else self.bound
        factors = [min(1.0, bound / norm) if norm > 0 else 1.0 for norm in norms.tolist()]
        server.note("bound", bound)
        for client, factor in zip(replies.ids, factors):
            server.note("factor", factor, client=client)
        if min(factors) == 1.0:
            return server_sum(replies.vectors, weights)
        kept = [p * f for p, f in zip(weights, factors)]
        mixed = mixture(server, replies, kept)
        back = [p - k for p, k in zip(weights, kept)]  # what a buffer takes from the sent value
        ends = [vector[nP:] for vector in (*replies.vectors, *replies.sent)]
        return torch.cat([mixed[:nP], server_sum(ends, [*kept, *back])])
