"""The samples of a stack: which ones every client takes at every step, their labels and their weights in the mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch

from undrift.round.lockstep.lane import Lane
from undrift.round.lockstep.linear import ALIGN
from undrift.round.runtime import Runtime

FEW_NUMBERS = 1 << 20  # the samples of all steps are read at once if they are at most so many: they stay in the cache


class Batches:
    """Tensors [steps, clients, rows] of a stack whose longest client comes first. A batch is filled up to its rows with its
    own first sample, at weight 0: where that sample is not finite, neither is the batch's loss, and no step is taken."""

    def __init__(self, runtime: Runtime, rows: int, lanes: Sequence[Lane]) -> None:
        self.runtime, self.rows, batch = runtime, rows, runtime.plan.batch
        device, start = runtime.model.device, 0
        places = np.empty((lanes[0].steps, len(lanes), rows), np.int64)
        counts = np.zeros(places.shape[:2], np.int64)  # samples of every batch
        for place, lane in enumerate(lanes):
            own = places[:, place]
            own[: lane.steps, :batch] = lane.positions
            own[: lane.steps, batch:] = own[: lane.steps, :1]
            own[lane.steps :] = 0
            own += start
            counts[: lane.steps, place] = lane.counts[: lane.steps]
            start += lane.data.n
        self.x, y, self.index = gathered(lanes, torch.from_numpy(places).to(device))
        self.y = y[self.index].long()
        self.batch = batch
        self.share = shares_of(rows)[torch.from_numpy(counts)].to(device)
        self.label_gradients: torch.Tensor | None = None

    def precompute(self, outputs: int) -> None:
        """Compute d Σ weights · cross-entropy / d log-probabilities for all steps, [steps, clients, outputs, rows]."""
        steps, clients, rows = self.y.shape
        empty = self.share.new_zeros(steps, clients, outputs, rows)
        self.label_gradients = empty.scatter_(2, self.y.unsqueeze(2), -self.share.unsqueeze(2))

    def of(self, step: int, clients: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x [clients, rows, …], y [clients, rows] and the weights [clients, rows] of a step of the first clients."""
        return self.samples(step, clients), self.y[step, :clients], self.share[step, :clients]

    def samples(self, step: int, clients: int) -> torch.Tensor:
        """x [clients, rows, …] of a step of the first clients."""
        x = self.inputs(self.index[step, :clients])
        return x.view(clients, self.rows, *x.shape[1:])

    def inputs(self, index: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.runtime.network_input(self.x.index_select(0, index.reshape(-1)))
        return found

    def read_ahead(self) -> Callable[[int, int], torch.Tensor]:
        """`samples` for steps that no hook looks at. The samples of all steps are read at once, where they are few."""
        width = self.x[:1].numel()
        rows = self.batch if self.batch * width % ALIGN == 0 else self.rows
        # Padding rows have weight 0, so they may be any samples. Where clients are aligned alike without padding, a client's
        # padding is the beginning of the next client's batch, and some batches more follow the last one.
        more = -(-(self.rows - rows) // rows)
        index = self.index[:, :, :rows]
        index = torch.cat([index, index[:, :1].expand(-1, more, -1)], 1).flatten(1) if more else index.flatten(1)
        if index.numel() * width <= FEW_NUMBERS:
            steps = self.windows(self.inputs(index), rows, self.index.size(1), index.size(1), len(index)).unbind()
            return lambda step, clients: steps[step] if clients == steps[step].size(0) else steps[step][:clients]
        places, apart = index.unbind(), self.rows - rows
        return lambda step, clients: self.windows(self.inputs(places[step][: clients * rows + apart]), rows, clients)[0]

    def windows(self, x: torch.Tensor, rows: int, clients: int, step: int = 0, steps: int = 1) -> torch.Tensor:
        """[steps, clients, self.rows, …] of samples one after the other: a client's begin `rows` after those of the one before, a
        step's `step` after those of the step before."""
        x = x.contiguous()
        sample = x[:1].numel()
        shape, strides = (steps, clients, self.rows), (step * sample, rows * sample, sample)
        return x.as_strided((*shape, *x.shape[1:]), (*strides, *x.stride()[1:]))


@cache
def shares_of(rows: int) -> torch.Tensor:
    """Row k: the weights of a batch of k samples, 1/k each and 0 where there is none."""
    k = torch.arange(rows + 1).view(-1, 1)
    return ((torch.arange(rows) < k) / k.clamp(min=1)).float()


def gathered(lanes: Sequence[Lane], index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(samples, targets, where the batches are among them), given where they are among those of all lanes. Clients whose
    samples are rows of one tensor need no copy of them."""
    found = [lane.data.in_place for lane in lanes]
    first = found[0]
    rows = (
        []
        if first is None
        else [one.rows for one in found if one is not None and one.x is first.x and one.y is first.y]
    )
    if first is None or len(rows) < len(lanes):
        return torch.cat([lane.data.x for lane in lanes]), torch.cat([lane.data.y for lane in lanes]), index
    return first.x, first.y, torch.cat(rows)[index]
