"""The samples of a stack: which ones every client takes at every step, their labels and their weights in the mean."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from undrift.round.lockstep.lane import Lane
from undrift.round.runtime import Runtime

FEW_NUMBERS = 1 << 20  # of which the samples of all steps may consist to be read at once: they stay in the cache


class Batches:
    """Tensors [steps, clients, rows] of a stack whose longest client comes first. A batch is filled up to its rows with its
    own first sample, at weight 0: where that sample is not finite, neither is the batch's loss, and no step is taken."""

    def __init__(self, runtime: Runtime, rows: int, lanes: Sequence[Lane]) -> None:
        self.runtime, self.rows = runtime, rows
        device, sizes = runtime.model.device, [len(lane.data.y) for lane in lanes]
        starts = torch.tensor([0, *sizes[:-1]]).cumsum(0).view(1, -1, 1)
        index = pad_sequence([lane.positions for lane in lanes]) + starts
        if (missing := rows - index.size(2)) > 0:
            index = torch.cat([index, index[:, :, :1].expand(-1, -1, missing)], 2)
        index = index.to(device)
        self.y = torch.cat([lane.data.y for lane in lanes])[index]
        self.x, self.index = gathered(lanes, index)
        # Row k of `shares`: the weights of a batch of k samples, 1/k each and 0 where there is none.
        k = torch.arange(rows + 1).view(-1, 1)
        shares = ((torch.arange(rows) < k) / k.clamp(min=1)).float()
        counts = [lane.counts[: lane.steps] + [0] * (len(index) - lane.steps) for lane in lanes]
        self.share = shares[torch.tensor(counts, dtype=torch.long).T].to(device)
        self.chosen: torch.Tensor | None = None
        self.gathered: Sequence[torch.Tensor] = ()  # by step, where they are read before the first one

    def choose(self, classes: int) -> None:
        """Know d Σ weights · cross-entropy / d log-probabilities of all steps, [steps, clients, classes, rows]."""
        steps, clients, rows = self.y.shape
        empty = self.share.new_zeros(steps, clients, classes, rows)
        self.chosen = empty.scatter_(2, self.y.unsqueeze(2), -self.share.unsqueeze(2))

    def of(self, step: int, clients: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x [clients, rows, …], y [clients, rows] and the weights [clients, rows] of a step of the first clients."""
        return self.samples(step, clients), self.y[step, :clients], self.share[step, :clients]

    def samples(self, step: int, clients: int) -> torch.Tensor:
        """x [clients, rows, …] of a step of the first clients."""
        if self.gathered:
            x = self.gathered[step]
            return x if x.size(0) == clients else x[:clients]
        x = self.inputs(self.index[step, :clients])
        return x.view(clients, self.rows, *x.shape[1:])

    def inputs(self, index: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.runtime.network_input(self.x.index_select(0, index.reshape(-1)))
        return found

    def gather(self) -> None:
        """Read the samples of all steps at once, where they are few."""
        if self.index.numel() * self.x[:1].numel() <= FEW_NUMBERS:
            x = self.inputs(self.index)
            self.gathered = x.view(*self.index.shape, *x.shape[1:]).unbind()


def gathered(lanes: Sequence[Lane], index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(samples, where the batches are among them), given where they are among the samples of all lanes. Clients whose samples
    are rows of one tensor need no copy of them."""
    kept = [lane.data.kept for lane in lanes]
    whole = None if kept[0] is None else kept[0][0]
    rows = [one[1] for one in kept if one is not None and one[0] is whole]
    if whole is None or len(rows) < len(lanes):
        return torch.cat([lane.data.x for lane in lanes]), index
    return whole, torch.cat(rows)[index]
