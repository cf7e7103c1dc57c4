"""One client in a stack: its batches, its hooks, its statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from undrift.contract.context import Batch
from undrift.contract.job import ActivePart, TrainingStats
from undrift.core.determinism import drawing_from
from undrift.core.streams import key, torch_stream
from undrift.core.vector import Integers
from undrift.round.orders import Reply
from undrift.round.second_gradient import Bound, bound

if TYPE_CHECKING:
    from undrift.round.client import ClientRound


class LaneRule:
    """What a client keeps of the optimizer: its momentum, in the form the one-by-one optimizer has it."""

    def __init__(self) -> None:
        self.buffers: list[torch.Tensor] = []


class Lane:
    """A client whose round is prepared up to its first batch. All draws come from the streams of one-by-one training, so
    the batches are the same."""

    logits_hooks: Sequence[Bound] = ()
    sample_weights: Sequence[Bound] = ()
    loss_terms: Sequence[Bound] = ()
    gradient_hooks: Sequence[Bound] = ()
    after_clips: Sequence[Bound] = ()
    update_masks: Sequence[Bound] = ()
    after_steps: Sequence[Bound] = ()
    proximal = 0.0  # lr · μ of all proximal terms

    def __init__(self, work: ClientRound, reply: Reply) -> None:
        plan, order = work.plan, work.order
        self.work, self.reply, self.data, self.plan = work, reply, work.data, plan
        self.stats, self.rule, self.lr = TrainingStats(plan.momentum), LaneRule(), plan.rate(order.round)
        if work.parts:
            self.bind(work.parts)
        self.mean_weight = 1.0  # of the last batch's samples
        self.mask: torch.Tensor | None = None
        self.batch: Batch | None = None
        self.scoring, self.scored = self.data.scoring, self.data.samples_scored
        self.epochs: list[int] = []  # by step
        self.counts: list[int] = []  # samples by step
        self.new_epochs: set[int] = set()  # the first step of each
        self.positions = self.schedule()
        self.steps = len(self.positions)

    def bind(self, parts: Sequence[ActivePart]) -> None:
        """The hooks of this client."""
        self.logits_hooks, self.sample_weights, self.loss_terms, self.gradient_hooks, self.after_clips = (
            bound(parts, hook) for hook in ("logits", "sample_weights", "loss", "gradient", "after_clip")
        )
        self.update_masks, self.after_steps = bound(parts, "update_mask"), bound(parts, "after_step")
        self.proximal = self.lr * sum(hook(job) for hook, job, _ in bound(parts, "proximal_strength"))
        if self.after_steps:
            order = self.work.order
            draws = torch.Generator().manual_seed(key(self.plan.seed, "also", order.round, order.client))
            self.after_step_draws = draws.get_state()

    def schedule(self) -> np.ndarray:
        """[steps, batch]: the positions of every batch of all epochs. An incomplete one is filled up with its first sample."""
        plan, order, orders = self.plan, self.work.order, list[torch.Tensor]()
        stream = torch_stream(plan.seed, "order", order.round, order.client)
        pickers = bound(self.work.parts, "epoch_indices")
        for epoch in range(plan.epochs):
            chosen, size = None, self.data.n
            for hook, job, scratch in pickers:
                chosen = hook(job, scratch, epoch)
                size = len(chosen)
            index = torch.randperm(size, generator=stream)
            orders.append(index if chosen is None else chosen.cpu()[index])
        # Epochs of equal length are cut together.
        alike = [orders] if len({len(one) for one in orders}) == 1 else [[one] for one in orders]
        rows = [self.cut(torch.stack(some).numpy(), epoch) for epoch, some in enumerate(alike)]
        return (rows[0] if len(rows) == 1 else np.concatenate(rows))[: order.budget]

    def cut(self, orders: np.ndarray, epoch: int) -> np.ndarray:
        """[steps, batch] of epochs [epochs, samples], of which the first one has this number."""
        (epochs, size), batch = orders.shape, self.plan.batch
        full, rest = divmod(size, batch)
        if rest == 1 and self.plan.layout.batchnorm_needs_two:  # BatchNorm cannot learn from one sample
            rest = 0
        steps, whole = full + (rest > 0), full * batch
        rows = np.empty((epochs, steps * batch), np.int64)
        rows[:, : whole + rest] = orders[:, : whole + rest]
        if rest:
            rows[:, whole + rest :] = orders[:, whole : whole + 1]
        first = len(self.counts)
        self.new_epochs.update(range(first, first + epochs * steps, steps) if steps else ())
        self.counts += ([batch] * full + [rest] * (rest > 0)) * epochs
        self.epochs += [number for number in range(epoch, epoch + epochs) for _ in range(steps)]
        return rows.reshape(-1, batch)

    def begin_step(self, step: int, count: bool = True) -> None:
        """Enter the step's epoch, where it is a new one. Without `count` the statistics come later."""
        if step in self.new_epochs:
            if step and count:
                self.stats.end_epoch()
            for hook, job, _ in self.update_masks:
                self.mask = hook(job, self.epochs[step])

    def after_step(self) -> None:
        """What else a part does with the batch, on random draws of its own."""
        for hook, job, scratch in self.after_steps:
            with drawing_from(self.after_step_draws):
                hook(self.batch, job, scratch)

    def integers(self) -> Integers:
        """BatchNorm's counts of batches."""
        return {name: count + self.steps for name, count in self.work.integers.items()}

    def finish(self) -> None:
        self.stats.end_epoch()
        if "effective_steps" in self.plan.lacks:
            self.stats.effective_steps = None
