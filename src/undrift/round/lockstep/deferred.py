"""Counting after the last step: where no hook looks at a loss, the losses of a stack are read once. On a device, reading one
at every step would stop the queue of kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from undrift.contract.job import PATIENCE
from undrift.round.lockstep.lane import Lane


class Deferred:
    """The losses of a stack. Which steps count is decided by the rule of `TrainingStats`: a loss that is not finite is
    skipped, and a client that skipped too many gives up."""

    def __init__(self, clients: int, device: torch.device, sees: bool) -> None:
        """`sees`: one number may be read at every step, to save what is only needed where a loss is not finite."""
        self.skipped = torch.zeros(clients, dtype=torch.int64, device=device)
        self.sees = sees
        self.losses: list[torch.Tensor] = []  # by step, of the clients that were left

    def usable(self, values: torch.Tensor) -> torch.Tensor | None:
        """Which clients of the front of the stack take this step; None: all."""
        self.losses.append(values)
        if self.sees and math.isfinite(values.sum().item()):
            return None
        self.sees = False
        skipped, finite = self.skipped[: len(values)], torch.isfinite(values)
        training = skipped < PATIENCE
        skipped += training & ~finite
        return training & finite

    def settle(self, lanes: Sequence[Lane]) -> None:
        """Every client's statistics, as if each loss had been read at its step: one transfer for the whole stack."""
        if not self.losses:
            return
        values = torch.cat(self.losses).tolist()
        starts = [0]
        for losses in self.losses:
            starts.append(starts[-1] + len(losses))
        for place, lane in enumerate(lanes):
            stats, mean_weight, proximal, new_epochs = lane.stats, lane.mean_weight, lane.proximal, lane.new_epochs
            for step, (count, start) in enumerate(zip(lane.counts[: lane.steps], starts)):
                if step and step in new_epochs:
                    stats.end_epoch()
                value = values[start + place]
                if stats.skipped < PATIENCE and stats.usable(value):
                    stats.add(count, value, mean_weight, proximal)


def held_back(rows: torch.Tensor, before: torch.Tensor, usable: torch.Tensor) -> None:
    """Put clients that did not take the step back to where they were."""
    torch.where(usable.unsqueeze(1), rows, before, out=rows)
