"""Norm bounding: updates longer than a bound are shortened, then the weighted mean is taken.

Sun et al.: Can You Really Backdoor Federated Learning?, 2019.

    θ ← θ + Σ_k p_k Δ_k · min(1, c/‖Δ_k‖)        c given, or the median of the cohort's norms

It limits how far one client can move the mean in a round. It does not detect which client is wrong. The norm is over
the whole vector, as BatchNorm statistics can be poisoned too, and a clipped statistic lies between what was sent and
what came back. The trap: a constant c that fits the first rounds has no effect once honest updates have become short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch

from undrift.contract.parts import Combine, Range, Replies, Server, server_sum
from undrift.methods.combine._points import mixture


@dataclass(frozen=True)
class Normbound(Combine):
    bound: Annotated[float | None, Range(above=0)] = None  # None: the median norm of the round

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
        shortened = [p * f for p, f in zip(weights, factors)]
        mixed = mixture(server, replies, shortened)
        back = [p - s for p, s in zip(weights, shortened)]  # what a buffer takes from the sent value
        ends = [vector[nP:] for vector in (*replies.vectors, *replies.sent)]
        return torch.cat([mixed[:nP], server_sum(ends, [*shortened, *back])])
