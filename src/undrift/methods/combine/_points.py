"""Shared by the robust rules: the clients' replies as points, read in blocks of coordinates so that memory stays small.

A client's point is [Δ of P | F]: parameters relative to what was sent, floating buffers as they are, so that a running
variance stays inside the range of the clients' variances. All arithmetic is float64: adding a difference of two float32
numbers back gives the number itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from undrift.contract.context import SkipRound
from undrift.contract.parts import Replies, Server

BLOCK = 1 << 16


def blocks(server: Server, replies: Replies) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """(slice, points of all clients there, what must be added to a combined point)."""
    nP, n = server.plan.layout.nP, len(server.vector)
    for start, stop in ((0, nP), (nP, n)):
        for at in range(start, stop, BLOCK):
            place = slice(at, min(at + BLOCK, stop))
            points = torch.stack([vector[place] for vector in replies.vectors]).double()
            base = server.vector[place].double()
            if start == nP:
                base = torch.zeros_like(base)
            else:
                points -= torch.stack([sent[place] for sent in replies.sent]).double()
            yield place, points, base


def per_coordinate(server: Server, replies: Replies, rule: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """A rule from (clients, coordinates) to (coordinates,)."""
    out = torch.empty_like(server.vector)
    for place, points, base in blocks(server, replies):
        out[place] = (base + rule(points)).float()
    return out


def mixture(server: Server, replies: Replies, shares: Sequence[float]) -> torch.Tensor:
    """Σ share · point; the parameters on top of the global vector."""
    factors = torch.tensor(list(shares), dtype=torch.float64)
    return per_coordinate(server, replies, lambda points: (points * factors[:, None]).sum(0))


def distances(server: Server, replies: Replies) -> torch.Tensor:
    """Squared distances between all pairs, m × m. The coordinate median is subtracted first: a far outlier then costs
    precision only in its own row, not in the distances between the others."""
    m = len(replies)
    gram = torch.zeros(m, m, dtype=torch.float64)
    for _, points, _ in blocks(server, replies):
        points -= points.quantile(0.5, dim=0) if m < 3 else points.sort(0).values[(m - 1) // 2]
        gram += points @ points.T
    square = gram.diagonal()
    return (square[:, None] + square[None, :] - 2 * gram).clamp(min=0).fill_diagonal_(0.0)


def need(replies: Replies, least: int, rule: str) -> None:
    """Skip a round with fewer replies than the rule needs: the mean would give a liar what the rule denies it."""
    if len(replies) < least:
        raise SkipRound(f"{rule} needs {least} clients and has {len(replies)}")
