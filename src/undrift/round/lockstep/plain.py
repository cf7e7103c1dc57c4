"""Steps that no hook looks at: products and SGD, nothing else. The losses are computed after the last step, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch

from undrift.round.lockstep.batches import Batches
from undrift.round.lockstep.dense import Dense, cross_entropy, through_softmax
from undrift.round.lockstep.vectors import Rates, Vectors

Front = tuple[int, Rates]  # how many clients take a step, and at which rates


def plain_steps(dense: Dense, batches: Batches, vectors: Vectors, fronts: Sequence[Front]) -> list[torch.Tensor] | None:
    """Take all steps. Returns the clients' losses by step, or None where one is not finite: a client does not take such a
    step, so what was done here does not count."""
    assert batches.chosen is not None
    samples = batches.read_ahead()
    chosen, shares, seen, active = batches.chosen.unbind(), batches.share.unbind(), list[torch.Tensor](), -1
    with torch.inference_mode():
        for step, (count, rates) in enumerate(fronts):
            if count != active:
                active = count
                leaves = vectors.leaves(count, autograd=False)
            log_probabilities = torch.log_softmax(dense.forward(leaves, samples(step, count), shares[step][:count]), 1)
            seen.append(log_probabilities)
            g = through_softmax(chosen[step][:count], log_probabilities)
            vectors.take(dense.backward(leaves, g, filled_up=True))
            vectors.step(rates)
        counts = [count for count, _ in fronts]
        y, share = (in_fronts(of, counts) for of in (batches.y, batches.share))
        losses = (cross_entropy(torch.cat(seen), y) * share).sum(1)
        return list(torch.split(losses, counts)) if bool(torch.isfinite(losses.sum())) else None


def in_fronts(of: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
    """[steps, clients, …] without the clients that are done, step by step."""
    found, step = list[torch.Tensor](), 0
    for count, alike in groupby(counts):
        steps = len(list(alike))
        found.append(of[step : step + steps, :count].flatten(0, 1))
        step += steps
    return torch.cat(found)
