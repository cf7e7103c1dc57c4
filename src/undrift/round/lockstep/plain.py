"""Steps that no hook looks at: products and SGD, nothing else. The losses are computed after the last step, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

import torch

from undrift.round.lockstep.batches import Batches
from undrift.round.lockstep.dense import Dense, cross_entropy, through_softmax
from undrift.round.lockstep.vectors import Rates, Vectors

Front = tuple[int, Rates]  # how many clients take a step, and at which rates


def plain_steps(dense: Dense, batches: Batches, vectors: Vectors, fronts: Sequence[Front]) -> list[torch.Tensor] | None:
    """Take all steps. Returns the clients' losses by step, or None where one is not finite: a client does not take such a
    step, so what was done here does not count."""
    assert batches.label_gradients is not None
    samples, seen, step = batches.read_ahead(), list[torch.Tensor](), 0
    labels, weights = list[torch.Tensor](), list[torch.Tensor]()
    with torch.inference_mode():
        for count, alike in groupby(fronts, key=itemgetter(0)):
            rates = [rates for _, rates in alike]
            steps = slice(step, step + len(rates))
            network = dense.bind(vectors.leaves(count, autograd=False), vectors.gradients(count))
            labels.append(batches.y[steps, :count].flatten(0, 1))
            weights.append(shares := batches.share[steps, :count])
            for share, chosen, rate in zip(shares.unbind(), batches.label_gradients[steps, :count].unbind(), rates):
                seen.append(torch.log_softmax(network.forward(samples(step, count), share), 1))
                network.backward(through_softmax(chosen, seen[-1]))
                vectors.step(count, rate)
                step += 1
        per_sample = cross_entropy(torch.cat(seen), torch.cat(labels))
        losses = (per_sample * torch.cat([share.flatten(0, 1) for share in weights])).sum(1)
        return list(torch.split(losses, [count for count, _ in fronts])) if bool(torch.isfinite(losses.sum())) else None
