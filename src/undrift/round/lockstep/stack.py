"""The epochs of a stack of clients, read top to bottom. The clients lie longest first, so those that are done leave at the
end of the stack, and what remains is always its front."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from undrift.round.lockstep import hooks
from undrift.round.lockstep.batches import Batches
from undrift.round.lockstep.decide import FEW_CLASSES
from undrift.round.lockstep.deferred import Deferred, held_back
from undrift.round.lockstep.dense import logits_gradient, losses, through_softmax
from undrift.round.lockstep.lane import Lane
from undrift.round.lockstep.network import Stacked
from undrift.round.lockstep.plain import plain_steps
from undrift.round.lockstep.second import second_models
from undrift.round.lockstep.vectors import Rates, Vectors
from undrift.round.runtime import Runtime

Kept = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]  # a row, what it was, where it may move (None: nowhere)


class Stack:
    """Clients that train together."""

    def __init__(self, runtime: Runtime, network: Stacked, rows: int, lanes: Sequence[Lane]) -> None:
        self.all = sorted(lanes, key=lambda lane: -lane.steps)
        self.runtime, self.plan, self.network, self.rows = runtime, runtime.plan, network, rows
        self.layout, self.device = self.plan.layout, runtime.model.device
        first = self.all[0]
        self.features, self.masked = runtime.wants("features"), bool(first.update_masks)
        self.raw_gradient = runtime.wants("gradient")
        scratches: dict[str, Any] = {}
        self.logits, self.gradients, self.after_clips = (
            hooks.Calls(self.all, name, scratches) for name in ("logits_hooks", "gradient_hooks", "after_clips")
        )
        # Without features hooks see the logits only: autograd goes that far, and what is before them is written out.
        self.dense = None if self.features or runtime.lockstep is None else runtime.lockstep.dense
        self.graph = bool(self.dense is None or self.logits or first.loss_terms)
        in_turn = not (self.gradients.at_once and self.after_clips.at_once)
        # Whether a hook looks at every client's own batch, beside sample weights; and at losses, step by step.
        self.looks_at_batch = bool(in_turn or first.after_steps or self.raw_gradient)
        in_turn = not self.logits.at_once
        self.sees_batches = bool(self.looks_at_batch or first.sample_weights or first.loss_terms or in_turn)
        self.hooked = bool(self.sees_batches or self.logits)
        self.new_epochs = {step for lane in self.all for step in lane.new_epochs}
        self.rates_known = {lane.lr for lane in self.all}
        self.private = None if self.plan.private is None else self.plan.private[: self.layout.nP].to(self.device)
        corrected = self.gradients or self.after_clips
        whole = bool(self.dense is None or self.hooked or corrected or self.masked or self.plan.clip is not None)
        self.keeps_momentum = self.plan.persist_momentum and self.plan.optimizer == "sgd" and self.plan.momentum > 0
        self.vectors = Vectors(self.plan, len(self.all), self.device, whole)
        self.load()
        self.second = second_models(runtime, [lane.data.second_models for lane in self.all])
        self.batches = Batches(runtime, rows, self.all)
        if self.dense is not None and not self.hooked and self.dense.outputs <= FEW_CLASSES:
            self.batches.precompute(self.dense.outputs)
        # Hooks see numbers at every step. Without one, losses are read at the end.
        self.deferred = None if self.hooked else Deferred(len(self.all), self.device, sees=not self.on_device())
        self.taking: torch.Tensor | None = None  # which clients take a step, where losses are read later; None: all

    def load(self) -> None:
        """Where the clients begin."""
        starts = [lane.work.start for lane in self.all]
        self.vectors.load(self.vectors.P, starts)
        self.vectors.load_statistics(starts)
        if self.keeps_momentum:
            self.vectors.load(self.vectors.V, [lane.work.before.momentum for lane in self.all])

    def on_device(self) -> bool:
        """Whether reading a number would stop a queue of kernels."""
        return self.device.type != "cpu"

    def run(self) -> None:
        self.runtime.model.module.train()
        if not self.plain():
            self.active = 0
            for step, active in enumerate(self.fronts()):
                if active != self.active:
                    self.shrink(active)
                self.step(step)
        if self.deferred is not None:
            self.deferred.settle(self.all)
        vectors = self.vectors
        momentum = vectors.rows(vectors.V) if self.keeps_momentum else None
        for place, (lane, trained) in enumerate(zip(self.all, vectors.trained())):
            lane.finish()
            lane.work.trained = trained
            if momentum is not None:
                lane.rule.buffers = [momentum[place]]

    def fronts(self) -> list[int]:
        """How many clients are left at each step."""
        ends = [lane.steps for lane in reversed(self.all)]
        return [len(ends) - bisect_right(ends, step) for step in range(ends[-1])]

    def plain(self) -> bool:
        """Take all steps at once, where no hook, mask or clip comes between the product and SGD. False: they are still to
        be taken."""
        if self.dense is None or self.deferred is None or self.vectors.whole or self.batches.label_gradients is None:
            return False
        fronts = self.fronts()
        rates = {count: self.rates_of(count) for count in set(fronts)}
        losses = plain_steps(self.dense, self.batches, self.vectors, [(count, rates[count]) for count in fronts])
        if losses is None:
            self.vectors.forget()
            self.load()
            return False
        self.deferred.losses = losses
        return True

    def shrink(self, count: int) -> None:
        """From now on the first `count` clients train."""
        self.active, self.lanes = count, self.all[:count]
        self.leaves = self.vectors.leaves(count, autograd=self.dense is None)
        if self.dense is not None:
            self.bound = self.dense.bind(self.leaves, None if self.vectors.whole else self.vectors.gradients(count))
        self.rates = self.rates_of(count)
        for calls in (self.logits, self.gradients, self.after_clips):
            calls.shrink(count)

    def rates_of(self, count: int) -> Rates:
        if len(self.rates_known) == 1:
            return [(lr, None) for lr in self.rates_known]
        places: dict[float, list[int]] = {}
        for place, lane in enumerate(self.all[:count]):
            places.setdefault(lane.lr, []).append(place)
        return list(places.items())

    def step(self, step: int) -> None:
        """One step of all clients that are left: forward, losses, backward, hooks, clip, SGD."""
        lanes = self.lanes
        if step in self.new_epochs:
            for lane in lanes:
                lane.begin_step(step, count=self.deferred is None)
        x, y, self.share = self.batches.of(step, self.active)
        if self.hooked:
            self.samples = [lane.counts[step] for lane in lanes]
        if self.graph:
            raw, usable = self.autograd_step(step, x, y)
        else:
            with torch.no_grad():
                raw, usable = self.dense_step(step, x, y)
        if self.deferred is not None:
            with torch.no_grad():
                self.update_deferred()
            return
        if not any(usable):
            return
        with torch.no_grad():
            self.update(usable)
        for models in self.second:
            models.begin([lane.batch for lane in lanes], x, y, self.share)
        for lane, count, value, good in zip(lanes, self.samples, raw, usable):
            if good:
                lane.stats.add(count, value, lane.mean_weight, lane.proximal)
                if lane.after_steps:
                    lane.after_step()
        for models in self.second:
            models.end()

    def dense_step(self, step: int, x: torch.Tensor, y: torch.Tensor) -> tuple[list[float], list[bool]]:
        """Losses and gradients without autograd, for methods whose hooks need no graph."""
        lanes, weights = self.lanes, self.share
        logits = self.bound.forward(x, self.share)
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
            if self.looks_at_batch or (lanes[0].sample_weights and stacked is None):
                hooks.batches(self, step, lanes, x, y, logits)
                for place, lane in enumerate(lanes):
                    assert lane.batch is not None
                    lane.batch.loss = per_sample[place, : len(lane.batch.y)]
                if lanes[0].sample_weights and stacked is None:
                    rows, values = hooks.weighted(self, lanes)
                    weights = hooks.padded_rows(rows, self.share)
        usable = self.usable(values)
        if self.deferred is not None or any(usable):
            if self.batches.label_gradients is not None:
                g = through_softmax(self.batches.label_gradients[step, : self.active], log_probabilities)
            else:
                g = logits_gradient(log_probabilities, y, weights)
            self.vectors.take(self.bound.backward(g))
        return raw, usable

    def autograd_step(self, step: int, x: torch.Tensor, y: torch.Tensor) -> tuple[list[float], list[bool]]:
        """Losses and gradients by autograd: the clients share no parameter, so one pass gives every client's. Where the network
        is written out, autograd ends at its logits."""
        lanes = self.lanes
        if self.dense is None:
            logits = self.network(self.leaves, x, self.share)
        else:
            with torch.no_grad():
                logits = self.bound.forward(x, self.share).transpose(1, 2).contiguous()
            logits.requires_grad_()
        per_sample = F.cross_entropy(logits.transpose(1, 2), y, reduction="none")
        raw = values = self.numbers((per_sample.detach() * self.share).sum(1))
        if self.hooked:
            if self.sees_batches:
                hooks.batches(self, step, lanes, x, y, logits.contiguous())
            loss, values = hooks.losses(self, lanes, lambda: hooks.of_all(self, x, y, logits), per_sample, raw)
        else:
            loss = (per_sample * self.share).sum()
        usable = self.usable(values)
        if self.deferred is not None or any(usable):
            # A scalar: given gradients of outputs, autograd would import sympy, which takes seconds.
            sources = [logits] if self.dense is not None else self.leaves[: len(self.vectors.entries)]
            found = torch.autograd.grad(loss, sources, allow_unused=True)
            grads = [torch.zeros_like(p) if g is None else g for g, p in zip(found, sources)]
            if self.dense is not None:
                with torch.no_grad():
                    grads = self.bound.backward(grads[0].transpose(1, 2).contiguous())
            self.vectors.take(grads)
        return raw, usable

    def numbers(self, values: torch.Tensor) -> list[float]:
        """The clients' losses as numbers. Deferred ones only say which clients take the step."""
        if self.deferred is None:
            return values.tolist()
        self.taking = self.deferred.usable(values)
        return []

    def usable(self, values: Sequence[float]) -> list[bool]:
        return [not lane.stats.gave_up and lane.stats.usable(value) for lane, value in zip(self.lanes, values)]

    def row(self, stack: Sequence[torch.Tensor], place: int) -> torch.Tensor:
        """A client's vector, where hooks see it."""
        return stack[0][place, : self.layout.nP]

    def update(self, usable: Sequence[bool] | None) -> None:
        """The gradient hooks, clip, SGD. A client without a usable loss stays where it is, momentum included. None: all
        take the step."""
        plan = self.plan
        if self.raw_gradient:
            for place, lane in enumerate(self.lanes):
                if lane.batch is not None:
                    lane.batch.gradient = self.row(self.vectors.G, place).clone()
        self.correct(self.gradients, usable)
        if plan.clip is not None:
            G = self.vectors.G[0][: self.active]
            norm = torch.linalg.vector_norm(G, dim=1, keepdim=True)
            # Only the parameters' own columns: padding has to stay 0, and a norm may be NaN.
            G[:, : self.layout.nP].mul_(torch.clamp(plan.clip / (norm + 1e-6), max=1.0))
        self.correct(self.after_clips, usable)
        kept = self.kept(usable) if self.masked or usable is not None else []
        self.vectors.step(self.active, self.rates)
        for row, before, mask in kept:
            if mask is None:
                row.copy_(before)
            else:
                own = row[: self.layout.nP]
                own.copy_(torch.where(mask, own, before[: self.layout.nP]))

    def kept(self, usable: Sequence[bool] | None) -> list[Kept]:
        """Rows of clients that do not move, or not everywhere, as they are before the step."""
        vectors = self.vectors
        found: list[Kept] = [
            (stack[place], stack[place].clone(), lane.mask if good else None)
            for place, (lane, good) in enumerate(zip(self.lanes, usable or [True] * self.active))
            if not good or lane.mask is not None
            for stack in vectors.stacks
        ]
        for place in (place for place, good in enumerate(usable or []) if not good):
            vectors.even = False
            found.append((vectors.taken[place], vectors.taken[place].clone(), None))
        return found

    def update_deferred(self) -> None:
        """`update` of all clients, then those that do not take the step are put back."""
        if self.taking is None:
            self.update(None)
            return
        self.vectors.even = False
        stacks = [stack[: self.active] for stack in (*self.vectors.stacks, self.vectors.taken)]
        before = [stack.clone() for stack in stacks]
        self.update(None)
        for stack, held in zip(stacks, before):
            held_back(stack, held, self.taking)

    def correct(self, calls: hooks.Calls, usable: Sequence[bool] | None) -> None:
        """What hooks make of the gradients, then the private part's own gradient back in its place."""
        if not calls:
            return
        P, G = (stack[0][: self.active, : self.layout.nP] for stack in (self.vectors.P, self.vectors.G))
        own = None if self.private is None else G[:, self.private]
        calls.gradients(P, G, self.lanes, usable)
        if own is not None:
            G[:, self.private] = own
