"""A client's round, read top to bottom: its state, what the parts prepare, local training, what goes back.

Everything here runs on one thread and draws only from streams keyed by (seed, purpose, round, client), so it gives the
same bits on every engine.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from undrift.contract.client_data import ClientData
from undrift.contract.context import copied, moved
from undrift.contract.declare import Malformed, read
from undrift.contract.job import ActivePart, Job, TrainingStats
from undrift.contract.parts import Part, defines
from undrift.core.determinism import put_back
from undrift.core.errors import BadRequest
from undrift.core.streams import key
from undrift.evaluate.client import client_metrics, evaluate_span, fine_tuned
from undrift.round.client_state import ClientState
from undrift.round.orders import Order, Reply
from undrift.round.packed import packed
from undrift.round.runtime import Runtime
from undrift.round.training import LocalTraining


def serve(runtime: Runtime, order: Order) -> Reply:
    """Do the work of an order; whatever goes wrong becomes part of the reply."""
    with put_back():
        return answered(runtime, order, lambda: WORKS[order.work](runtime, order))


def answered(runtime: Runtime, order: Order, work: Callable[[], Reply], draws: bool = True) -> Reply:
    """A reply from work on an order: the client's own draws, and a failure where the work raises. Call it within
    `put_back`. Without `draws` nothing there draws from the default generator."""
    began = time.perf_counter()
    try:
        if draws:
            torch.default_generator.manual_seed(key(runtime.plan.seed, "local", order.round, order.client))
        reply = work()
    except Malformed as wrong:
        reply = Reply(order.round, order.client).failed("malformed", str(wrong))
    except Exception as error:
        own = isinstance(error, BadRequest)  # one of our own sentences: it says all
        detail = str(error) if own else f"{type(error).__name__}: {error}"
        reply = Reply(order.round, order.client).failed("exception", detail, "" if own else traceback.format_exc())
    reply.seconds = time.perf_counter() - began
    return reply


class OptimizerState(Protocol):
    @property
    def buffers(self) -> list[torch.Tensor]: ...


class Trained(Protocol):
    """What is left of a client's training: its statistics and its optimizer."""

    @property
    def stats(self) -> TrainingStats: ...
    @property
    def rule(self) -> OptimizerState: ...


class ClientRound:
    """One client in one round."""

    training: type[LocalTraining] = LocalTraining
    together = False  # whether its models are evaluated with those of other clients, by `evaluated`
    held: Sequence[tuple[Any, torch.Tensor]] = ()  # what it uses, to be evaluated

    def __init__(self, runtime: Runtime, order: Order) -> None:
        self.runtime, self.order, self.plan, self.model = runtime, order, runtime.plan, runtime.model
        self.before = ClientState.of(order, self.model.device)
        self.integers = {**order.integers, **self.before.private_integers}
        self.received = self.with_private(order.vector.to(self.model.device))
        self.data = ClientData(runtime, order.round, order.client, self.integers)
        self.data.lockstep = runtime.lockstep is not None and self.training is LocalTraining
        self.parts = [self.activate(part) for part in self.plan.method.at_client]
        self.personalize = next((one for one in self.parts if one.part.axis == "personalize"), None)

    def activate(self, part: Part) -> ActivePart:
        message = self.order.server_messages.get(part.key, {})
        message = read(part.key, part.downlink, message, self.plan, self.with_own_entries)
        job = Job(self.data, part.key, self.received)
        return ActivePart(part, job, moved(message, self.model.device), self.before.parts.get(part.key))

    # ---- before training -------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """First states, held-out data, and where training begins."""
        held_out = []
        for one in self.parts:
            if self.before.new:
                one.state = copied(one.part.init_client(one.job))
            if defines(one.part, "hold_out"):
                held_out.append(one.part.hold_out(one.job))
        if held_out:
            self.data.hold_out(torch.unique(torch.cat(held_out)))
            for one in self.parts:
                one.job.count()
        self.start = self.received
        if self.personalize is not None:
            one = self.personalize
            one.scratch = one.part.before_start(one.job, one.state, one.server_message)
            if defines(one.part, "start"):
                self.start = one.part.start(one.job, one.scratch)
        for one in self.parts:
            one.job.start = self.start

    def before_training(self) -> None:
        for one in self.parts:
            if one is not self.personalize:
                one.scratch = one.part.before_training(one.job, one.state, one.server_message)

    # ---- training --------------------------------------------------------------------------------------------

    def train(self) -> Reply:
        """Local training and everything that goes back to the server."""
        reply = self.begin()
        if reply.failure is not None:
            return reply
        if self.data.in_stack:
            from undrift.round.lockstep.serve import alone

            return alone(self, reply)
        return self.train_alone(reply)

    def train_alone(self, reply: Reply) -> Reply:
        """The epochs, one by one, once everything is prepared."""
        data = self.data
        self.model.load(self.start, self.integers)
        assert self.model.intact(), "the module's tensors are no longer views of its vector"
        began, scoring, scored = time.perf_counter(), data.scoring, data.samples_scored
        momentum = self.before.momentum if self.plan.persist_momentum else None
        training = self.training(self.runtime, self.order, data, self.parts, momentum)
        training.run()
        training.free()
        seconds = time.perf_counter() - began - (data.scoring - scoring)
        reply.samples_scored_in_epochs = data.samples_scored - scored
        self.trained = self.model.vector.clone()
        return self.finish(reply, training, seconds)

    def begin(self) -> Reply:
        """Everything before the first batch; a reply that has failed where there is nothing to train on."""
        reply = self.opened()
        if reply.failure is None:
            self.before_training()
        return reply

    def opened(self) -> Reply:
        """The beginning of a reply: it is known where training begins, and on what."""
        self.prepare()
        reply = Reply(self.order.round, self.order.client, n=self.data.n)
        return reply if self.data.n else reply.failed("empty", "the client has no training sample")

    def finish(self, reply: Reply, training: Trained, seconds: float) -> Reply:
        """Everything after the last batch. `self.trained` is the trained model, and the network holds it where a part may ask
        for it."""
        data, stats = self.data, training.stats
        if stats.gave_up or (stats.skipped and not stats.steps):
            reply = reply.failed("nonfinite", f"the loss was not finite in {stats.skipped} steps")
        elif not stats.steps:
            reply = reply.failed("empty", "not a single step was possible")
        else:
            reply = self.after_training(reply, training)
        reply.notes, reply.steps = data.notes, stats.steps
        reply.spent |= {"training": seconds, "scoring": data.scoring}
        return reply

    # ---- after training --------------------------------------------------------------------------------------

    def after_training(self, reply: Reply, training: Trained) -> Reply:
        """New states, the messages, the upload, and the metrics of what the client uses now (stage L2)."""
        stats, trained = training.stats, self.trained
        self.data.samples_trained += stats.samples
        reply.effective_steps, reply.loss, reply.last = stats.effective_steps, stats.mean_loss, stats.last_loss
        after = ClientState()
        for one in self.parts:
            one.job.stats, one.job.trained = stats, trained
        for one in self.parts:
            one.state, message = one.part.after_training(one.job, one.scratch, one.state)
            one.state = copied(one.state)
            if one.state is not None:
                after.parts[one.part.key] = one.state
            reply.client_messages[one.part.key] = read(
                one.part.key, one.part.uplink, message, self.plan, self.without_private, one.server_message
            )
        self.upload(after, reply)
        # What evaluation does below is no cost of the method.
        reply.samples_scored, reply.samples_trained = self.data.samples_scored, self.data.samples_trained
        self.fill(after, training)
        reply = after.put_into(reply, private=self.plan.private is not None)
        if reply.failure is not None:
            return reply
        reply.vector = self.outgoing
        reply.integers = self.model.integers()
        if self.order.evaluate_on:
            self.held = self.mixture(trained)
            return reply if self.together else self.evaluated(reply)
        return reply

    def upload(self, after: ClientState, reply: Reply) -> None:
        """What leaves: the model without private entries, and what the upload parts make of its update."""
        self.outgoing = self.as_sent(self.trained).cpu()
        uploads = [one for one in self.parts if defines(one.part, "upload")]
        if not uploads:
            return
        received = self.order.vector.cpu()
        update, messages = self.outgoing - received, reply.client_messages
        for one in uploads:
            state, update, messages = one.part.upload(one.job, one.scratch, one.state, update, messages)
            one.state = copied(state)
            if one.state is not None:
                after.parts[one.part.key] = one.state
        reply.client_messages = {
            one.part.key: read(
                one.part.key, one.part.uplink, messages.get(one.part.key, {}), self.plan, self.without_private
            )
            for one in self.parts
        }
        self.outgoing = received + update
        arrays = packed(self.plan, update)
        uploads[-1].job.note("bytes", sum(array.nbytes for array in arrays.values()))
        if self.runtime.at_site:
            reply.packed = arrays

    def fill(self, after: ClientState, training: Trained) -> None:
        """What the plan keeps of the training itself, beside the parts' own states."""
        if self.plan.private is not None:
            after.private = self.trained[self.plan.private.to(self.trained.device)]
            integers = self.model.integers()
            after.private_integers = {name: integers[name] for name in integers if name in self.plan.private_integers}
        if self.plan.persist_momentum and training.rule.buffers:
            after.momentum = training.rule.buffers[0]
        if self.plan.keep_trained:
            after.trained = self.trained

    # ---- evaluation ------------------------------------------------------------------------------------------

    def personalized(self) -> Reply:
        """What the client would use on receiving this vector (stage L1), evaluated; nothing is committed."""
        self.prepare()
        start, last = self.start, self.before.trained
        if self.order.data == "held" and last is not None:
            start = last.to(self.model.device)
        self.held = self.mixture(start)
        reply = Reply(self.order.round, self.order.client)
        return reply if self.together and not self.data.borrows else self.evaluated(reply)

    def evaluated(self, reply: Reply, ready: torch.Tensor | None = None) -> Reply:
        """The reply with the metrics of what the client uses. `ready`: their outputs, where a stack has made them."""
        began, held = time.perf_counter(), self.held
        self.held = ()
        reply.metrics = client_metrics(self.runtime, self.order, held, self.model.integers(), ready)
        reply.spent["judging"] = reply.spent.get("judging", 0.0) + time.perf_counter() - began
        return reply

    def mixture(self, vector: torch.Tensor) -> list[tuple[Any, torch.Tensor]]:
        """What the client uses: a mixture of outputs, [(weight, vector)]."""
        one = self.personalize
        return [(1.0, vector)] if one is None else one.part.personal_models(one.job, one.state, vector)

    # ---- private entries -------------------------------------------------------------------------------------

    def with_private(self, vector: torch.Tensor) -> torch.Tensor:
        """A copy of what arrived, with the client's private entries (Θ⁰'s for a client that was never committed). Where no
        part looks at it, nobody can change it, and clients share it."""
        if not self.plan.method.at_client and self.plan.private is None:
            return vector
        vector = vector.clone()
        if self.plan.private is not None:
            mask = self.plan.private.to(vector.device)
            own = self.runtime.initial[mask] if self.before.private is None else self.before.private
            vector[mask] = own.to(vector.device)
        return vector

    def with_own_entries(self, vector: torch.Tensor) -> torch.Tensor:
        """Another model as this client gets it: with the client's own private entries."""
        assert self.plan.private is not None
        return torch.where(self.plan.private, self.received.cpu(), vector)

    def as_sent(self, vector: torch.Tensor) -> torch.Tensor:
        """The trained model as it leaves: what a reply does not carry is as the server had sent it."""
        if (unsent := self.plan.unsent) is None:
            return vector
        return torch.where(unsent, self.order.vector.cpu(), vector.cpu())

    def without_private(self, vector: torch.Tensor) -> torch.Tensor:
        """A model as it leaves: private entries as the server had sent them."""
        if self.plan.private is None:
            return vector
        return torch.where(self.plan.private, self.order.vector.cpu(), vector.cpu())


def diagnose(runtime: Runtime, order: Order) -> Reply:
    return Reply(order.round, order.client, found=runtime.diagnostics[order.span[0]].work(runtime, order))


# What a worker does for each kind of order.
WORKS = {
    "train": lambda runtime, order: ClientRound(runtime, order).train(),
    "personalize": lambda runtime, order: ClientRound(runtime, order).personalized(),
    "fine_tune": fine_tuned,
    "evaluate": evaluate_span,
    "diagnose": diagnose,
}
