"""A client's local training: the epochs, read top to bottom.

What no part defines costs nothing: the hooks are bound once, and a plain method runs the bare training loop. All draws
come from streams keyed by (seed, purpose, round, client), so every engine gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from undrift.contract.client_data import ClientData
from undrift.contract.context import Batch
from undrift.contract.job import ActivePart, TrainingStats
from undrift.core import optimize
from undrift.core.determinism import drawing_from, freeze_statistics
from undrift.core.samples import padded
from undrift.core.streams import key, torch_stream
from undrift.round.orders import Order
from undrift.round.runtime import Runtime
from undrift.round.sample_gradients import SampleGradients
from undrift.round.second_gradient import Bound, SecondGradient, bound, needs_second


class LocalTraining:
    """Trains the runtime's model, which holds the starting vector, on one client's data."""

    def __init__(
        self,
        runtime: Runtime,
        order: Order,
        data: ClientData,
        parts: Sequence[ActivePart],
        momentum: torch.Tensor | None,
    ) -> None:
        plan, model = runtime.plan, runtime.model
        self.runtime, self.order, self.data, self.plan, self.model = runtime, order, data, plan, model
        self.lr = plan.rate(order.round)
        self.stats = TrainingStats(plan.momentum)
        self.rule = optimize.optimizer(model, plan, momentum)
        self.epoch_indices, self.sample_weights, self.logits_hooks, self.loss_terms = (
            bound(parts, hook) for hook in ("epoch_indices", "sample_weights", "logits", "loss")
        )
        self.batch_indices = bound(parts, "batch_indices")
        self.per_sample = SampleGradients(runtime) if runtime.wants("sample_gradients") else None
        self.gradient_hooks = bound([one for one in parts if not needs_second(one)], "gradient")
        self.after_clips = bound(parts, "after_clip")
        self.update_masks, self.after_steps = bound(parts, "update_mask"), bound(parts, "after_step")
        self.features, self.raw_gradient = runtime.wants("features"), runtime.wants("gradient")
        # The recorded loss is the raw one; where no hook touches it, it is the loss that is trained.
        self.plain = not (self.logits_hooks or self.sample_weights or self.loss_terms)
        self.second = SecondGradient(self, parts) if runtime.wants("gradient_at") else None
        # Where no part looks at the gradient it goes from autograd to the optimizer as it is, tensor by tensor.
        self.flat = bool(
            self.gradient_hooks or self.after_clips or self.raw_gradient or self.update_masks or plan.clip is not None
            or self.rule.flat or self.second is not None
        )  # fmt: skip
        self.G = torch.empty_like(model.P)
        self.private = None if plan.private is None else plan.private[: plan.layout.nP].to(model.device)
        self.proximal = self.lr * sum(hook(job) for hook, job, _ in bound(parts, "proximal_strength"))
        self.mask: torch.Tensor | None = None
        self.order_stream = torch_stream(plan.seed, "order", order.round, order.client)
        self.augment_stream = torch_stream(plan.seed, "augment", order.round, order.client)
        self.after_step_draws = (
            torch.Generator().manual_seed(key(plan.seed, "also", order.round, order.client)).get_state()
        )
        # BatchNorm cannot learn from one value per channel: batches of one sample are skipped, and where there is no
        # other batch, its statistics stay as they are.
        self.only_single = plan.layout.batchnorm_needs_two and min(data.n, plan.batch) == 1
        self.skip_single = plan.layout.batchnorm_needs_two and not self.only_single

    def run(self) -> TrainingStats:
        self.prepare()
        stats = self.stats
        for epoch in range(self.plan.epochs):
            for batch in self.batches(epoch):
                loss = self.loss(batch)
                value = loss.item()
                if not stats.usable(value):
                    continue
                raw = value if self.plain else self.raw_loss(batch)
                self.update(batch, loss)
                stats.add(len(batch.y), raw, batch.mean_weight, self.proximal)
                if self.after_steps:
                    self.after_step(batch)
            stats.end_epoch()
        if "effective_steps" in self.plan.lacks:
            stats.effective_steps = None
        return stats

    def free(self) -> None:
        """Give up what only the steps need: the vectors that follow may be as large."""
        del self.G
        if not self.plan.persist_momentum:
            del self.rule

    def prepare(self) -> None:
        if self.features:
            self.model.watch()
        self.model.module.train()
        if self.only_single:
            freeze_statistics(self.model.module)

    def batches(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch, until the client's budget is used up or it has given up."""
        index = torch.arange(self.data.n)
        for hook, job, scratch in self.epoch_indices:
            index = hook(job, scratch, epoch)
        index = index[torch.randperm(len(index), generator=self.order_stream)]
        for hook, job, _ in self.update_masks:
            self.mask = hook(job, epoch)
        stats = self.stats
        for place, x, y in self.slices(index, epoch):
            if stats.gave_up or stats.steps + stats.skipped == self.order.budget:
                return
            if self.skip_single and len(y) == 1:
                continue
            x = self.runtime.network_input(x)
            if self.runtime.augment is not None:
                x = self.runtime.augment(x, self.augment_stream)
            batch = Batch(x, padded(y), place, self.model.P, epoch)
            if self.per_sample is not None:
                batch.per_sample = self.per_sample
            if self.second is not None:
                self.second.watch(batch)
            yield batch

    def slices(self, index: torch.Tensor, epoch: int) -> Iterator[tuple[torch.Tensor, Any, Any]]:
        """(positions, x, y) of every batch: slices of the shuffled epoch, unless a part says what a batch is."""
        data, size = self.data, self.plan.batch
        for hook, job, scratch in self.batch_indices:
            yield from ((place, data.x[place], data.y[place]) for place in hook(job, scratch, epoch))
            return
        x, y = data.x[index], data.y[index]
        for at in range(0, len(index), size):
            yield index[at : at + size], x[at : at + size], y[at : at + size]

    def loss(self, batch: Batch) -> torch.Tensor:
        """The loss to minimise: logits → loss per sample → sample weights → mean → added terms."""
        z = batch.logits = self.model(batch.x)
        if self.features:
            batch.features, batch.head = self.model.features, self.model.head
        for hook, job, scratch in self.logits_hooks:
            z = hook(z, batch, job, scratch)
        per_sample = batch.loss = self.runtime.loss(z, batch.y)
        if self.sample_weights:
            (hook, job, scratch), *others = self.sample_weights
            weights = hook(batch, job, scratch)
            for hook, job, scratch in others:
                weights = weights * hook(batch, job, scratch)
            per_sample, batch.mean_weight = weights * per_sample, weights.mean().item()
        loss = per_sample.mean()
        for hook, job, scratch in self.loss_terms:
            loss = loss + hook(batch, job, scratch)
        return loss

    def raw_loss(self, batch: Batch) -> float:
        """The mean loss of the raw logits, without what the hooks made of it."""
        with torch.no_grad():
            raw = self.runtime.loss(batch.logits, batch.y) if self.logits_hooks else batch.loss
            return raw.mean().item()

    def update(self, batch: Batch, loss: torch.Tensor) -> None:
        """Backward, the gradient hooks, those that look at another point, clip, step, mask."""
        if not self.flat:
            self.rule.update(self.model.gradients(loss), self.lr)
            return
        G = self.G
        self.model.gradient(loss, into=G)
        if self.raw_gradient:
            batch.gradient = G.clone()
        if self.gradient_hooks:
            self.correct(G, batch, self.gradient_hooks)
        if self.second is not None:
            self.second.correct(G, batch)
        optimize.clip(self.rule, G)
        if self.after_clips:
            self.correct(G, batch, self.after_clips)
        optimize.after_clip(self.rule, G, self.lr, self.mask)

    def correct(self, G: torch.Tensor, batch: Batch, hooks: list[Bound]) -> None:
        """What hooks make of the gradient, then the private part's own gradient back in its place."""
        own = G[self.private] if self.private is not None else None
        for hook, job, scratch in hooks:
            hook(self.model.P, G, batch, job, scratch)
        if own is not None:
            G[self.private] = own

    def after_step(self, batch: Batch) -> None:
        """What else a part does with the batch, on random draws of its own."""
        for hook, job, scratch in self.after_steps:
            with drawing_from(self.after_step_draws):
                hook(batch, job, scratch)
