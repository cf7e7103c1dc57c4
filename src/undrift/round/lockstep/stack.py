"""The epochs of a stack of clients, read top to bottom. The clients lie longest first, so those that are done leave at the
end of the stack, and what remains is always its front."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from undrift.round.lockstep import hooks
from undrift.round.lockstep.batches import Batches
from undrift.round.lockstep.deferred import Deferred, held_back
from undrift.round.lockstep.dense import Dense, logits_gradient, losses
from undrift.round.lockstep.lane import Lane
from undrift.round.lockstep.linear import rounded
from undrift.round.lockstep.network import Stacked, leaves_of
from undrift.round.runtime import Runtime
from undrift.round.second_gradient import Bound

Kept = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]  # a row, what it was, where it may move (None: nowhere)


class Stack:
    """Clients that train together. P, G and V (momentum) are [clients, width]; a width is nP, filled up to whole vectors."""

    def __init__(self, runtime: Runtime, network: Stacked, rows: int, lanes: Sequence[Lane]) -> None:
        self.all = sorted(lanes, key=lambda lane: -lane.steps)
        self.runtime, self.plan, self.network, self.rows = runtime, runtime.plan, network, rows
        self.layout, self.device = self.plan.layout, runtime.model.device
        count, width, nP = len(self.all), rounded(self.layout.nP), self.layout.nP
        self.P, self.G = (torch.zeros(count, width, device=self.device) for _ in range(2))
        self.V = torch.zeros(count, width, device=self.device) if self.plan.momentum > 0 else None
        torch.stack([lane.work.start[:nP] for lane in self.all], out=self.P[:, :nP])
        if self.V is not None and self.plan.persist_momentum:
            for place, lane in enumerate(self.all):
                if lane.work.before.momentum is not None:
                    self.V[place, :nP] = lane.work.before.momentum
        first = self.all[0]
        self.hooked, self.features = first.hooked, runtime.wants("features")
        self.raw_gradient, self.masked = runtime.wants("gradient"), bool(first.update_masks)
        graph = first.logits_hooks or first.loss_terms or self.features
        self.dense = None if graph or runtime.lockstep is None else runtime.lockstep.dense
        self.looks_at_gradient = bool(first.gradient_hooks or first.after_clips or self.raw_gradient)
        self.new_epochs = {step for lane in self.all for step in lane.new_epochs}
        self.private = None if self.plan.private is None else self.plan.private[:nP].to(self.device)
        self.batches = Batches(runtime, rows, self.all)
        # Hooks see numbers at every step. Without one, losses are read at the end.
        self.deferred = None if self.hooked else Deferred(count, self.device, sees=not self.on_device())
        self.taking: torch.Tensor | None = None  # which clients take a step, where losses are read later; None: all

    def on_device(self) -> bool:
        """Whether reading a number would stop a queue of kernels."""
        return self.device.type != "cpu"

    def run(self) -> None:
        self.runtime.model.module.train()
        active = len(self.all)
        self.shrink(active)
        for step in range(self.all[0].steps):
            while self.all[active - 1].steps <= step:
                active -= 1
            if active < self.active:
                self.shrink(active)
            self.step(step)
        if self.deferred is not None:
            self.deferred.settle(self.all)
        for place, lane in enumerate(self.all):
            lane.finish()
            if self.V is not None:
                lane.rule.buffers = [self.V[place, : self.layout.nP]]

    def shrink(self, count: int) -> None:
        """From now on the first `count` clients train."""
        self.active, self.lanes = count, self.all[:count]
        self.leaves = leaves_of(self.layout, self.P, count)
        self.pad = self.P.new_zeros(count, self.P.size(1) - self.layout.nP)
        places: dict[float, list[int]] = {}
        for place, lane in enumerate(self.lanes):
            places.setdefault(lane.lr, []).append(place)
        self.rates = [(lr, None if len(places) == 1 else own) for lr, own in places.items()]

    def step(self, step: int) -> None:
        """One step of all clients that are left: forward, losses, backward, hooks, clip, SGD."""
        lanes = self.lanes
        if step in self.new_epochs:
            for lane in lanes:
                lane.begin_step(step, count=self.deferred is None)
        x, y, self.share = self.batches.of(step, self.active)
        if self.hooked:
            self.samples = [lane.counts[step] for lane in lanes]
        if self.dense is not None:
            with torch.no_grad():
                raw, usable = self.dense_step(self.dense, step, x, y)
        else:
            raw, usable = self.autograd_step(step, x, y)
        if self.deferred is not None:
            with torch.no_grad():
                self.update_deferred()
            return
        if not any(usable):
            return
        with torch.no_grad():
            self.update(usable)
        for lane, count, value, good in zip(lanes, self.samples, raw, usable):
            if good:
                lane.stats.add(count, value, lane.mean_weight, lane.proximal)

    def dense_step(self, dense: Dense, step: int, x: torch.Tensor, y: torch.Tensor) -> tuple[list[float], list[bool]]:
        """Losses and gradients without autograd, for methods whose hooks need no graph."""
        lanes, weights = self.lanes, self.share
        logits = dense.forward(self.leaves, x)
        log_probabilities, per_sample = losses(logits, y)
        raw = values = self.numbers((per_sample * self.share).sum(1))
        if self.hooked:
            logits = logits.transpose(1, 2).contiguous()  # [clients, rows, classes], as hooks know them
            stacked = hooks.stack_weights(self, lanes, logits)
            if stacked is not None:
                weights = stacked * self.share
                values = (per_sample * weights).sum(1).tolist()
                for lane, mean in zip(lanes, weights.sum(1).tolist()):
                    lane.mean_weight = mean
            if stacked is None or self.looks_at_gradient:
                hooks.batches(self, step, lanes, x, y, logits)
                for place, lane in enumerate(lanes):
                    assert lane.batch is not None
                    lane.batch.loss = per_sample[place, : len(lane.batch.y)]
                if lanes[0].sample_weights and stacked is None:
                    rows, values = hooks.weighted(self, lanes)
                    weights = hooks.filled(rows, self.share)
        usable = self.usable(values)
        if self.deferred is not None or any(usable):
            self.collect(dense.backward(self.leaves, logits_gradient(log_probabilities, y, weights)))
        return raw, usable

    def autograd_step(self, step: int, x: torch.Tensor, y: torch.Tensor) -> tuple[list[float], list[bool]]:
        """Losses and gradients by autograd: the clients share no parameter, so one pass gives every client's."""
        lanes = self.lanes
        logits = self.network(self.leaves, x)
        per_sample = F.cross_entropy(logits.transpose(1, 2), y, reduction="none")
        raw = values = self.numbers((per_sample.detach() * self.share).sum(1))
        if self.hooked:
            hooks.batches(self, step, lanes, x, y, logits.contiguous())
            loss, values = hooks.losses(self, lanes, per_sample, raw)
        else:
            loss = (per_sample * self.share).sum()
        usable = self.usable(values)
        if self.deferred is not None or any(usable):
            # A scalar: given gradients of outputs, autograd would import sympy, which takes seconds.
            found = torch.autograd.grad(loss, self.leaves, allow_unused=True)
            self.collect([torch.zeros_like(p) if g is None else g for g, p in zip(found, self.leaves)])
        return raw, usable

    def numbers(self, values: torch.Tensor) -> list[float]:
        """The clients' losses as numbers. Deferred ones only say which clients take the step."""
        if self.deferred is None:
            return values.tolist()
        self.taking = self.deferred.usable(values)
        return []

    def usable(self, values: Sequence[float]) -> list[bool]:
        return [not lane.stats.gave_up and lane.stats.usable(value) for lane, value in zip(self.lanes, values)]

    def collect(self, grads: Sequence[torch.Tensor]) -> None:
        """Gradients, one tensor per parameter, along the rows of G."""
        count = self.active
        torch.cat([*(grad.reshape(count, -1) for grad in grads), self.pad], dim=1, out=self.G[:count])

    def row(self, stack: torch.Tensor, place: int) -> torch.Tensor:
        return stack[place, : self.layout.nP]

    def update(self, usable: Sequence[bool] | None) -> None:
        """The gradient hooks, clip, SGD. A client without a usable loss stays where it is, momentum included. None: all
        take the step."""
        count, plan, lanes = self.active, self.plan, self.lanes
        P, G = self.P[:count], self.G[:count]
        if self.hooked and usable is not None:
            self.gradient_hooks(usable)
        if plan.clip is not None:
            norm = torch.linalg.vector_norm(G, dim=1, keepdim=True)
            G.mul_(torch.clamp(plan.clip / (norm + 1e-6), max=1.0))
        if self.hooked and usable is not None:
            for place, (lane, good) in enumerate(zip(lanes, usable)):
                if good and lane.after_clips:
                    self.correct(lane, place, lane.after_clips)
        stacks = [P] if self.V is None else [P, self.V[:count]]
        kept = self.kept(stacks, usable) if self.masked or usable is not None else []
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

    def kept(self, stacks: Sequence[torch.Tensor], usable: Sequence[bool] | None) -> list[Kept]:
        """Rows of clients that do not move, or not everywhere, as they are before the step."""
        return [
            (stack[place], stack[place].clone(), lane.mask if good else None)
            for place, (lane, good) in enumerate(zip(self.lanes, usable or [True] * self.active))
            if not good or lane.mask is not None
            for stack in stacks
        ]

    def update_deferred(self) -> None:
        """`update` of all clients, then those that do not take the step are put back."""
        if self.taking is None:
            self.update(None)
            return
        stacks = [stack[: self.active] for stack in (self.P, self.V) if stack is not None]
        before = [stack.clone() for stack in stacks]
        self.update(None)
        for stack, held in zip(stacks, before):
            held_back(stack, held, self.taking)

    def gradient_hooks(self, usable: Sequence[bool]) -> None:
        for place, (lane, good) in enumerate(zip(self.lanes, usable)):
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
