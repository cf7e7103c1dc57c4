"""A client's round: rows 3 to 9 of the contract, read top to bottom.

Everything here runs on one thread and draws only from streams keyed by (seed, purpose, round, client), so it gives the
same bits on every engine. What no part defines costs nothing: the hooks are looked up once, and a plain method runs
the bare training loop.
"""

from __future__ import annotations

import math
import time
import traceback
from dataclasses import dataclass
from typing import Any

import torch

from undrift import optimize
from undrift.bits import deterministic, drawing_from, rest_statistics
from undrift.context import Batch, Tree, copied, finite_tree, moved
from undrift.declare import Malformed, read
from undrift.evaluate import judge
from undrift.job import Desk, Job
from undrift.orders import Order, Reply
from undrift.parts import Part, defines
from undrift.site import Site
from undrift.streams import key, torch_stream

PATIENCE = 3  # skipped steps after which a client gives up


def serve(site: Site, order: Order) -> Reply:
    """Do the work of an order; whatever goes wrong becomes part of the reply."""
    began = time.perf_counter()
    try:
        with deterministic(key(site.plan.seed, "local", order.round, order.client)):
            if order.work == "judge":
                reply = judge.stretch(site, order)
            elif order.work == "tune":
                reply = judge.newcomer(site, order)
            elif order.work == "diagnose":
                reply = Reply(order.round, order.client, found=site.diagnostics[order.span[0]].work(site, order))
            else:
                reply = Round(site, order).run()
    except Malformed as wrong:
        reply = Reply(order.round, order.client).failed("malformed", str(wrong))
    except Exception as error:
        detail = f"{type(error).__name__}: {error}"
        reply = Reply(order.round, order.client).failed("exception", detail, traceback.format_exc())
    reply.seconds = time.perf_counter() - began
    return reply


@dataclass
class Seat:
    """A part at work for one client: its job, what it was told, its state and its scratch."""

    part: Any
    job: Job
    told: dict[str, Any]
    state: Tree = None
    scratch: Any = None


@dataclass
class Done:
    """What the loop did."""

    steps: int
    samples: int
    skipped: int
    a: float | None
    mean_loss: float
    last_loss: float
    mean_weight: float


class Round:
    """One client in one round."""

    def __init__(self, site: Site, order: Order) -> None:
        self.site, self.order, self.plan, self.model = site, order, site.plan, site.model
        self.desk = Desk(site, order.round, order.client, order.integers)
        own = moved(order.state or {}, self.model.device)
        self.received = self.with_private(order.vector.to(self.model.device), own.get("private"))
        self.states: dict[str, Tree] = own.get("parts", {})
        self.held = own.get("held")
        self.buffer = own.get("momentum")
        self.new = order.state is None
        self.seats = [self.seat(part) for part in self.plan.method.at_client]
        self.personal = next((seat for seat in self.seats if seat.part.axis == "personalize"), None)

    def run(self) -> Reply:
        self.prepare()
        return self.train() if self.order.work == "train" else self.hold()

    # ---- before training -------------------------------------------------------------------------------------

    def seat(self, part: Part) -> Seat:
        told = read(part.key, part.receives, self.order.told.get(part.key, {}), self.plan, self.own_entries)
        told = moved(told, self.model.device)
        return Seat(part, Job(self.desk, part.key, self.received), told, self.states.get(part.key))

    def prepare(self) -> None:
        """Rows 3 and 4: first states, held-out data, where training begins."""
        held_out = []
        for seat in self.seats:
            if self.new:
                seat.state = copied(seat.part.first(seat.job))
            if defines(seat.part, "reserve"):
                held_out.append(seat.part.reserve(seat.job))
        if held_out:
            self.desk.hold_out(torch.cat(held_out).unique())
            for seat in self.seats:
                seat.job.count()
        self.start = self.received
        if self.personal is not None:
            seat = self.personal
            seat.scratch = seat.part.begin(seat.job, seat.state, seat.told)
            if defines(seat.part, "start"):
                self.start = seat.part.start(seat.job, seat.scratch)
        self.tell(start=self.start)

    def tell(self, **facts: Any) -> None:
        for seat in self.seats:
            for name, value in facts.items():
                setattr(seat.job, name, value)

    # ---- training --------------------------------------------------------------------------------------------

    def train(self) -> Reply:
        reply = Reply(self.order.round, self.order.client, n=len(self.desk.y))
        if not len(self.desk.y):
            return reply.failed("empty", "the client has no training sample")
        for seat in self.seats:
            if seat is not self.personal:
                seat.scratch = seat.part.begin(seat.job, seat.state, seat.told)
        self.model.load(self.start, self.order.integers)
        assert self.model.intact(), "the module's tensors are no longer views of its vector"
        began, scored, looked = time.perf_counter(), self.desk.scoring, self.desk.looked
        done = self.steps()
        training = time.perf_counter() - began - (self.desk.scoring - scored)
        reply.looked_in_epochs = self.desk.looked - looked
        if done.skipped >= PATIENCE or (done.skipped and not done.steps):
            reply = reply.failed("nonfinite", f"the loss was not finite in {done.skipped} steps")
        elif not done.steps:
            reply = reply.failed("empty", "not a single step was possible")
        else:
            self.trained = self.model.vector.clone()
            self.tell(**vars(done), trained=self.trained)
            reply.a, reply.loss, reply.last = done.a, done.mean_loss, done.last_loss
            self.desk.learned += done.samples
            reply = self.finish(reply)
        reply.notes, reply.steps = self.desk.notes, done.steps
        reply.spent |= {"training": training, "scoring": self.desk.scoring}
        return reply

    def steps(self) -> Done:
        """The lean loop."""
        plan, model, desk, site = self.plan, self.model, self.desk, self.site
        picks, weighs, logits_hooks, losses, gradients, also, trains = (self.with_hook(hook) for hook in HOOKS)
        lr, n = plan.rate(self.order.round), len(desk.y)
        pull = sum(seat.part.pull(seat.job) for seat in self.with_hook("pull"))
        features, raw_gradient = site.wants("features"), site.wants("gradient")
        if features:
            model.watch()
        private = None if plan.private is None else plan.private[: plan.layout.nP].to(model.device)
        self.rule = optimize.optimizer(model, plan, self.buffer if plan.persist_momentum else None)
        order_stream = torch_stream(plan.seed, "order", self.order.round, self.order.client)
        augment_stream = torch_stream(plan.seed, "augment", self.order.round, self.order.client)
        beside = torch.Generator().manual_seed(key(plan.seed, "also", self.order.round, self.order.client)).get_state()
        # Nobody looks at the gradient: it goes from autograd to the optimizer as it is, tensor by tensor.
        flat = bool(gradients or raw_gradient or trains or plan.clip is not None or self.rule.flat)
        lone = plan.layout.lone
        resting = lone and min(n, plan.batch) == 1  # every batch would have one sample: statistics rest
        G = torch.empty_like(model.P)
        steps = skipped = 0
        a, b, seen, total, weight_sum = 0.0, 0.0, 0, 0.0, 0.0
        last = math.nan
        model.module.train()
        if resting:
            rest_statistics(model.module)
        for epoch in range(plan.epochs):
            index = picks[0].part.pick(picks[0].job, picks[0].scratch, epoch) if picks else torch.arange(n)
            index = index[torch.randperm(len(index), generator=order_stream)]
            everything_x, everything_y = desk.x[index], desk.y[index]
            mask = trains[0].part.trains(trains[0].job, epoch) if trains else None
            epoch_seen, epoch_total = 0, 0.0
            for at in range(0, len(index), plan.batch):
                if steps + skipped == self.order.budget:
                    break
                y = everything_y[at : at + plan.batch]
                if lone and not resting and len(y) == 1:
                    continue
                x = site.network(everything_x[at : at + plan.batch])
                if site.augment is not None:
                    x = site.augment(x, augment_stream)
                batch = Batch(x, y, index[at : at + plan.batch], model.P, epoch)
                z = batch.logits = model(x)
                if features:
                    batch.features, batch.head = model.features, model.head
                for seat in logits_hooks:
                    z = seat.part.logits(z, batch, seat.job, seat.scratch)
                batch.loss = site.loss(z, y)
                loss = batch.loss
                weight = 1.0
                if weighs:
                    w = weighs[0].part.weigh(batch, weighs[0].job, weighs[0].scratch)
                    for seat in weighs[1:]:
                        w = w * seat.part.weigh(batch, seat.job, seat.scratch)
                    loss, weight = w * loss, w.mean().item()
                loss = loss.mean()
                for seat in losses:
                    loss = loss + seat.part.loss(batch, seat.job, seat.scratch)
                value = loss.item()
                if not math.isfinite(value):
                    skipped += 1
                    if skipped == PATIENCE:
                        return Done(steps, seen, skipped, None, math.nan, math.nan, math.nan)
                    continue
                if logits_hooks or weighs or losses:  # the recorded loss is the raw one
                    with torch.no_grad():
                        value = (site.loss(batch.logits, y) if logits_hooks else batch.loss).mean().item()
                if not flat:
                    self.rule.update(model.gradients(loss), lr)
                else:
                    model.gradient(loss, into=G)
                    if raw_gradient:
                        batch.gradient = G.clone()
                    if gradients:
                        own = G[private] if private is not None else None
                        for seat in gradients:
                            seat.part.gradient(model.P, G, batch, seat.job, seat.scratch)
                        if own is not None:
                            G[private] = own
                    optimize.step(self.rule, G, lr, mask)
                steps += 1
                b = plan.momentum * b + 1 - lr * pull * a
                a += b
                epoch_seen, epoch_total = epoch_seen + len(y), epoch_total + value * len(y)
                weight_sum += weight * len(y)
                if also:
                    with drawing_from(beside):
                        also[0].part.also(batch, also[0].job, also[0].scratch)
            if epoch_seen:
                last = epoch_total / epoch_seen
            seen, total = seen + epoch_seen, total + epoch_total
        some = max(seen, 1)
        known = None if "a" in plan.lacks else a
        return Done(steps, seen, skipped, known, total / some, last, weight_sum / some)

    def with_hook(self, hook: str) -> list[Seat]:
        return [seat for seat in self.seats if defines(seat.part, hook)]

    # ---- after training --------------------------------------------------------------------------------------

    def finish(self, reply: Reply) -> Reply:
        """Row 8: new states, messages, what is uploaded, and the judgement of what the client holds (stage L2)."""
        plan, trained = self.plan, self.trained
        new_states: dict[str, Tree] = {}
        for seat in self.seats:
            after, message = seat.part.finish(seat.job, seat.scratch, seat.state)
            seat.state = copied(after)
            if seat.state is not None:
                new_states[seat.part.key] = seat.state
            reply.messages[seat.part.key] = read(
                seat.part.key, seat.part.sends, message, plan, self.without_private, seat.told
            )
        reply.looked, reply.learned = self.desk.looked, self.desk.learned  # what judging does below is no cost
        state: dict[str, Tree] = {"parts": new_states}
        if plan.private is not None:
            integers = {k: v for k, v in self.model.integers().items() if k in plan.private_integers}
            state["private"] = {"vector": trained[plan.private.to(trained.device)].cpu(), "integers": integers}
        if plan.persist_momentum and self.rule.buffers:
            state["momentum"] = self.rule.buffers[0].cpu().clone()
        if plan.keep_held:
            state["held"] = trained.cpu()
        if not finite_tree(state):
            return reply.failed("nonfinite", "the client's new state is not finite")
        if len(state) > 1 or new_states:
            reply.state, reply.stateful = state, True
        reply.vector = self.without_private(trained).cpu()
        reply.integers = self.model.integers()
        if self.order.judge:
            began = time.perf_counter()
            reply.verdicts = judge.client(self.site, self.order, self.mixture(trained), self.model.integers())
            reply.spent["judging"] = time.perf_counter() - began
        return reply

    def hold(self) -> Reply:
        """Row 14: what the client would hold on receiving this vector (stage L1), judged; nothing is committed."""
        reply = Reply(self.order.round, self.order.client)
        start = self.held.to(self.model.device) if self.order.data == "held" and self.held is not None else self.start
        reply.verdicts = judge.client(self.site, self.order, self.mixture(start), self.order.integers)
        return reply

    def mixture(self, vector: torch.Tensor) -> list[tuple[Any, torch.Tensor]]:
        if self.personal is None:
            return [(1.0, vector)]
        return self.personal.part.holds(self.personal.job, self.personal.state, vector)

    # ---- private entries -------------------------------------------------------------------------------------

    def with_private(self, vector: torch.Tensor, own: Tree) -> torch.Tensor:
        """What arrives, a copy of its own, with the client's private entries (Θ⁰'s for one never committed)."""
        vector = vector.clone()
        if self.plan.private is None:
            return vector
        mask = self.plan.private.to(vector.device)
        vector[mask] = (self.site.initial[mask] if own is None else own["vector"]).to(vector.device)
        if own is not None:
            self.desk.integers = {**self.desk.integers, **own["integers"]}
            self.order.integers = self.desk.integers
        return vector

    def own_entries(self, vector: torch.Tensor) -> torch.Tensor:
        """Somebody's model as this client gets it: with its own private entries."""
        return torch.where(self.plan.private, self.received.cpu(), vector)  # type: ignore[arg-type]

    def without_private(self, vector: torch.Tensor) -> torch.Tensor:
        """A model as it leaves: private entries as the server had sent them."""
        if self.plan.private is None:
            return vector
        return torch.where(self.plan.private, self.order.vector.cpu(), vector.cpu())


HOOKS = ("pick", "weigh", "logits", "loss", "gradient", "also", "trains")
