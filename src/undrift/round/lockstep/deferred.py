"""Counting without waiting: on a device, reading a loss would stop the queue of kernels at every step."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from undrift.contract.job import PATIENCE
from undrift.round.lockstep.lane import Lane


class Deferred:
    """The losses of a stack stay on the device until its last step. Which steps count is decided there, by the rule of
    `TrainingStats`: a loss that is not finite is skipped, and a client that skipped too many gives up."""

    def __init__(self, clients: int, device: torch.device) -> None:
        self.skipped = torch.zeros(clients, dtype=torch.int64, device=device)
        self.losses: list[torch.Tensor] = []  # by step, of the clients that were left

    def usable(self, values: torch.Tensor) -> torch.Tensor:
        """Which clients of the front of the stack take this step."""
        skipped, finite = self.skipped[: len(values)], torch.isfinite(values)
        training = skipped < PATIENCE
        skipped += training & ~finite
        self.losses.append(values)
        return training & finite

    def settle(self, lanes: Sequence[Lane]) -> None:
        """Every client's statistics, as if each loss had been read at its step: one transfer for the whole stack."""
        if not self.losses:
            return
        values = iter(torch.cat(self.losses).tolist())
        for step, losses in enumerate(self.losses):
            for lane, value in zip(lanes, [next(values) for _ in range(len(losses))]):
                if step in lane.new_epochs and step:
                    lane.stats.end_epoch()
                if not lane.stats.gave_up and lane.stats.usable(value):
                    lane.stats.add(lane.counts[step], value, lane.mean_weight, lane.proximal)


def held_back(rows: torch.Tensor, before: torch.Tensor, usable: torch.Tensor) -> None:
    """Put clients that did not take the step back to where they were."""
    torch.where(usable.unsqueeze(1), rows, before, out=rows)
