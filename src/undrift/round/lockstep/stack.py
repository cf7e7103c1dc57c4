"""The epochs of a stack of clients, read top to bottom. The clients lie longest first, so those that are done leave at the
end of the stack, and what remains is always its front."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from undrift.round.lockstep import hooks
from undrift.round.lockstep.deferred import Deferred, held_back
from undrift.round.lockstep.dense import Dense, logits_gradient, losses
from undrift.round.lockstep.lane import Lane
from undrift.round.lockstep.network import Stacked, leaves_of, rounded
from undrift.round.runtime import Runtime
from undrift.round.second_gradient import Bound


class Stack:
    """Clients that train together. P, G and V (momentum) are [clients, width]; a width is nP, filled up to whole vectors."""

    def __init__(self, runtime: Runtime, network: Stacked, rows: int, lanes: Sequence[Lane]) -> None:
        self.lanes = sorted(lanes, key=lambda lane: -lane.steps)
        self.runtime, self.plan, self.network, self.rows = runtime, runtime.plan, network, rows
        self.layout, self.device = self.plan.layout, runtime.model.device
        count, width, nP = len(self.lanes), rounded(self.layout.nP), self.layout.nP
        self.P, self.G = (torch.zeros(count, width, device=self.device) for _ in range(2))
        self.V = torch.zeros(count, width, device=self.device) if self.plan.momentum > 0 else None
        for place, lane in enumerate(self.lanes):
            self.P[place, :nP] = lane.work.start[:nP]
            if self.V is not None and self.plan.persist_momentum and lane.work.before.momentum is not None:
                self.V[place, :nP] = lane.work.before.momentum
        first = self.lanes[0]
        self.hooked, self.features = first.hooked, runtime.wants("features")
        self.raw_gradient = runtime.wants("gradient")
        graph = first.logits_hooks or first.loss_terms or self.features
        self.dense = None if graph or runtime.lockstep is None else runtime.lockstep.dense
        self.looks_at_gradient = bool(first.gradient_hooks or first.after_clips or self.raw_gradient)
        self.new_epochs = {step for lane in self.lanes for step in lane.new_epochs}
        self.samples: list[int] = []  # of the step, by client
        self.private = None if self.plan.private is None else self.plan.private[:nP].to(self.device)
        self.gather_data()
        self.active = 0
        self.deferred = Deferred(count, self.device) if self.defers() else None

    def defers(self) -> bool:
        """Whether losses are read at the end only. Hooks see numbers at every step, so theirs are read there."""
        return self.device.type != "cpu" and not self.hooked

    def gather_data(self) -> None:
        """All clients' samples in one tensor, an empty one at its end, and where every batch of every step is in it."""
        x, y = [lane.data.x for lane in self.lanes], [lane.data.y for lane in self.lanes]
        self.x = torch.cat([*x, x[0].new_zeros(1, *x[0].shape[1:])])
        self.y = torch.cat([*y, y[0].new_zeros(1)])
        empty, batch = len(self.y) - 1, self.plan.batch
        self.index = torch.full((self.lanes[0].steps, len(self.lanes), self.rows), empty)
        at = 0
        for place, lane in enumerate(self.lanes):
            self.index[: lane.steps, place, :batch] = torch.where(lane.positions < 0, empty, lane.positions + at)[
                :, : self.rows
            ]
            at += len(lane.data.y)
        self.index = self.index.to(self.device)
        # Row k: the weights of a batch of k samples, 1/k each and 0 where there is none.
        k = torch.arange(self.rows + 1).view(-1, 1)
        self.shares = ((torch.arange(self.rows) < k) / k.clamp(min=1)).float().to(self.device)

    def run(self) -> None:
        self.runtime.model.module.train()
        for step in range(self.lanes[0].steps):
            while self.lanes[(self.active or len(self.lanes)) - 1].steps <= step:
                self.shrink((self.active or len(self.lanes)) - 1)
            if not self.active:
                self.shrink(len(self.lanes))
            self.step(step)
        if self.deferred is not None:
            self.deferred.settle(self.lanes)
        for place, lane in enumerate(self.lanes):
            lane.finish()
            if self.V is not None:
                lane.rule.buffers = [self.V[place, : self.layout.nP]]

    def shrink(self, count: int) -> None:
        """From now on the first `count` clients train."""
        self.active = count
        self.leaves = leaves_of(self.layout, self.P, count)
        self.pad = self.P.new_zeros(count, self.P.size(1) - self.layout.nP)
        places: dict[float, list[int]] = {}
        for place, lane in enumerate(self.lanes[:count]):
            places.setdefault(lane.lr, []).append(place)
        self.rates = [(lr, None if len(places) == 1 else own) for lr, own in places.items()]

    def step(self, step: int) -> None:
        """One step of all clients that are left: forward, losses, backward, hooks, clip, SGD."""
        lanes = self.lanes[: self.active]
        if step in self.new_epochs:
            for lane in lanes:
                lane.begin_step(step, count=self.deferred is None)
        samples = [lane.counts[step] for lane in lanes]
        if samples != self.samples:
            self.samples, self.share = samples, self.shares[samples]
        if self.dense is not None:
            with torch.no_grad():
                raw, usable = self.dense_step(self.dense, step, lanes)
        else:
            raw, usable = self.autograd_step(step, lanes)
        if self.deferred is not None:
            with torch.no_grad():
                self.update_deferred(lanes)
            return
        if not any(usable):
            return
        with torch.no_grad():
            self.update(lanes, usable)
        for lane, count, value, good in zip(lanes, samples, raw, usable):
            if good:
                lane.stats.add(count, value, lane.mean_weight, lane.proximal)

    def samples_of(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """x [clients, rows, …] and y [clients · rows] of a step."""
        index = self.index[step, : self.active].reshape(-1)
        x = self.runtime.network_input(self.x.index_select(0, index))
        return x.view(self.active, self.rows, *x.shape[1:]), self.y.index_select(0, index)

    def dense_step(self, dense: Dense, step: int, lanes: Sequence[Lane]) -> tuple[list[float], list[bool]]:
        """Losses and gradients without autograd, for methods whose hooks need no graph."""
        x, y = self.samples_of(step)
        logits = dense.forward(self.leaves, x)
        log_probabilities, per_sample = losses(logits.flatten(0, 1), y)
        per_sample = per_sample.view(self.active, -1)
        raw = values = self.numbers((per_sample * self.share).sum(1))
        weights = self.share
        stacked = hooks.stack_weights(self, lanes, logits)
        if stacked is not None:
            weights = stacked * self.share
            values = (per_sample * weights).sum(1).tolist()
            for lane, mean in zip(lanes, weights.sum(1).tolist()):
                lane.mean_weight = mean
        if self.hooked and (stacked is None or self.looks_at_gradient):
            hooks.batches(self, step, lanes, x, y.view(self.active, -1), logits)
            for place, lane in enumerate(lanes):
                assert lane.batch is not None
                lane.batch.loss = per_sample[place, : len(lane.batch.y)]
            if lanes[0].sample_weights and stacked is None:
                rows, values = hooks.weighted(self, lanes)
                weights = hooks.filled(rows, self.share)
        usable = self.usable(lanes, values)
        if any(usable):
            g = logits_gradient(log_probabilities, y, weights.reshape(-1))
            self.collect(dense.backward(self.leaves, g.view_as(logits)))
        return raw, usable

    def autograd_step(self, step: int, lanes: Sequence[Lane]) -> tuple[list[float], list[bool]]:
        """Losses and gradients by autograd: the clients share no parameter, so one pass gives every client's."""
        x, y = self.samples_of(step)
        logits = self.network(self.leaves, x)
        per_sample = F.cross_entropy(logits.flatten(0, 1), y, reduction="none")
        raw = values = self.numbers((per_sample.detach().view(self.active, -1) * self.share).sum(1))
        if self.hooked:
            hooks.batches(self, step, lanes, x, y.view(self.active, -1), logits)
            loss, values = hooks.losses(self, lanes, per_sample, raw)
        else:
            loss = (per_sample * self.share.reshape(-1)).sum()
        usable = self.usable(lanes, values)
        if any(usable):
            # A scalar: given gradients of outputs, autograd would import sympy, which takes seconds.
            found = torch.autograd.grad(loss, self.leaves, allow_unused=True)
            self.collect([torch.zeros_like(p) if g is None else g for g, p in zip(found, self.leaves)])
        return raw, usable

    def numbers(self, values: torch.Tensor) -> list[float]:
        """The clients' losses as numbers. Deferred ones only say on the device which clients take the step."""
        if self.deferred is None:
            return values.tolist()
        self.taking = self.deferred.usable(values)
        return [0.0] * len(values)

    def usable(self, lanes: Sequence[Lane], values: Sequence[float]) -> list[bool]:
        return [not lane.stats.gave_up and lane.stats.usable(value) for lane, value in zip(lanes, values)]

    def collect(self, grads: Sequence[torch.Tensor]) -> None:
        """Gradients, one tensor per parameter, along the rows of G."""
        count = self.active
        torch.cat([*(grad.reshape(count, -1) for grad in grads), self.pad], dim=1, out=self.G[:count])

    def row(self, stack: torch.Tensor, place: int) -> torch.Tensor:
        return stack[place, : self.layout.nP]

    def update(self, lanes: Sequence[Lane], usable: Sequence[bool]) -> None:
        """The gradient hooks, clip, SGD. A client without a usable loss stays where it is, momentum included."""
        count, plan = self.active, self.plan
        P, G = self.P[:count], self.G[:count]
        if self.hooked:
            self.gradient_hooks(lanes, usable)
        if plan.clip is not None:
            norm = torch.linalg.vector_norm(G, dim=1, keepdim=True)
            G.mul_(torch.clamp(plan.clip / (norm + 1e-6), max=1.0))
        if self.hooked:
            for place, (lane, good) in enumerate(zip(lanes, usable)):
                if good and lane.after_clips:
                    self.correct(lane, place, lane.after_clips)
        stacks = [P] if self.V is None else [P, self.V[:count]]
        kept = [
            (stack[place], stack[place].clone(), lane.mask if good else None)
            for place, (lane, good) in enumerate(zip(lanes, usable))
            if not good or lane.mask is not None
            for stack in stacks
        ]
        for lr, places in self.rates:
            # Rows are whole registers, so the kernel rounds alike for one row and for all.
            p, g, v = (
                [stack] if places is None else [stack[place] for place in places] for stack in (P, G, stacks[-1])
            )
            torch._fused_sgd_(
                p, g, v if self.V is not None else [], weight_decay=plan.weight_decay, momentum=plan.momentum, lr=lr,
                dampening=0.0, nesterov=False, maximize=False, is_first_step=False,
            )  # fmt: skip
        for row, before, mask in kept:
            if mask is None:
                row.copy_(before)
            else:
                own = row[: self.layout.nP]
                own.copy_(torch.where(mask, own, before[: self.layout.nP]))

    def update_deferred(self, lanes: Sequence[Lane]) -> None:
        """`update` of all clients, then those that do not take the step are put back."""
        stacks = [stack[: self.active] for stack in (self.P, self.V) if stack is not None]
        before = [stack.clone() for stack in stacks]
        self.update(lanes, [True] * len(lanes))
        for stack, held in zip(stacks, before):
            held_back(stack, held, self.taking)

    def gradient_hooks(self, lanes: Sequence[Lane], usable: Sequence[bool]) -> None:
        for place, (lane, good) in enumerate(zip(lanes, usable)):
            if not good:
                continue
            if self.raw_gradient and lane.batch is not None:
                lane.batch.gradient = self.row(self.G, place).clone()
            if lane.gradient_hooks:
                self.correct(lane, place, lane.gradient_hooks)

    def correct(self, lane: Lane, place: int, called: Sequence[Bound]) -> None:
        """What hooks make of a client's gradient, then the private part's own gradient back in its place."""
        P, G = self.row(self.P, place), self.row(self.G, place)
        own = G[self.private] if self.private is not None else None
        for hook, job, scratch in called:
            hook(P, G, lane.batch, job, scratch)
        if own is not None:
            G[self.private] = own
