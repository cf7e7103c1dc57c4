"""The server's half of a round: from orders and replies to the next state, nothing changed in place.

A round makes a new `ServerState` from the last one. So a round that breaks leaves nothing behind, and a checkpoint can
be written while the next round runs.
"""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from undrift.contract.context import (
    Message,
    Plan,
    Replies,
    Server,
    Shelf,
    SkipRound,
    Tree,
    capped,
    copied,
    normalised,
)
from undrift.contract.declare import Malformed, read
from undrift.contract.parts import Part, defines
from undrift.core.errors import BadRequest, RunFailed
from undrift.core.vector import Flat, Integers
from undrift.round.orders import Order, Reply
from undrift.store.record import Event, Note
from undrift.store.server_state import ServerState, Versions
from undrift.store.states import States


class ServerRound:
    """One round at the server. `window(part)` is what a part's hook sees; what it assigns there is staged, and becomes
    part of the next state or is forgotten."""

    def __init__(
        self,
        plan: Plan,
        state: ServerState,
        states: States,
        model: Callable[[torch.Tensor], Flat],
        proxy: Callable[[], tuple[torch.Tensor, torch.Tensor] | None],
    ) -> None:
        self.plan, self.state, self.states, self.model, self.proxy = plan, state, states, model, proxy
        self.memories: dict[str, Tree] = {}
        self.rows: dict[str, dict[int, Tree]] = {}
        self.notes: list[Note] = []
        self.events: list[Event] = []
        self.vector = state.vector

    def window(self, part: Part) -> Server:
        """The server as this part sees it."""
        kind = f"shelf/{part.key}"
        versions, round = self.state.versions, self.state.round
        shelf = Shelf(
            lambda client: self.states.get(kind, client, versions[kind, client]),
            lambda: {client for k, client in versions if k == kind},
            self.rows.setdefault(part.key, {}),
        )

        def note(name: str, value: Any, client: int | None = None) -> None:
            self.notes.append((round, client, part.key, name, as_json(value)))

        proxy = self.proxy() if "proxy" in part.needs else None
        return Server(
            self.plan, round, self.vector, part.key, self.state.memories, self.memories, shelf, self.model, note, proxy,
            self.state.evaluated,
        )  # fmt: skip

    # ---- before the clients ----------------------------------------------------------------------------------

    def broadcasts(self) -> dict[str, Message]:
        """What goes to every client, by part."""
        parts = self.plan.method.defining("broadcast")
        return {part.key: self.declared(part, self.call(part, "broadcast")) for part in parts}

    def messages_for(self, broadcasts: dict[str, Message], client: int) -> dict[str, Message]:
        """What goes to one client, by part: the broadcasts and what is meant for it alone."""
        messages = dict(broadcasts)
        for part in self.plan.method.defining("message_for"):
            own = self.declared(part, self.call(part, "message_for", client))
            messages[part.key] = {**messages.get(part.key, {}), **own}
        return messages

    def declared(self, part: Part, message: Message) -> Message:
        """What goes down is checked before it leaves, as what comes up is on arrival."""
        try:
            return read(part.key, part.downlink, message, self.plan, lambda vector: vector)
        except Malformed as wrong:
            raise RunFailed(f"in round {self.state.round}: {wrong}") from wrong

    def model_for(self, client: int, position: int) -> torch.Tensor:
        """The vector this client is sent."""
        for part in self.plan.method.defining("model_for"):  # one at most: the axis has a single place
            return self.vector_of(part, "model_for", client, position)
        return self.vector

    def call(self, part: Part, hook: str, *given: Any) -> Any:
        """A part's hook at the server. What it raises ends the run with the part's name and the part's own traceback."""
        try:
            return getattr(part, hook)(self.window(part), *given)
        except (BadRequest, RunFailed, SkipRound):
            raise
        except Exception as error:
            inner = error.__traceback__.tb_next if error.__traceback__ else None
            trace = "".join(traceback.format_exception(type(error), error, inner))
            raise RunFailed(
                f"in round {self.state.round}: {part.key} failed in {hook}: {type(error).__name__}: {error}\n\n{trace}"
            ) from error

    def vector_of(self, part: Part, hook: str, *given: Any) -> torch.Tensor:
        """The vector that a part's hook returns, which must be one of the model."""
        value = self.call(part, hook, *given)
        if not isinstance(value, torch.Tensor) or value.shape != self.state.vector.shape:
            raise self.wrong(part, hook, value, f"a vector of the model, a tensor of {len(self.state.vector)} numbers")
        return value

    def wrong(self, part: Part, hook: str, value: Any, wanted: str) -> RunFailed:
        got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        return RunFailed(f"in round {self.state.round}: {part.key} returned {got} from {hook}; it must return {wanted}")

    # ---- after the clients -----------------------------------------------------------------------------------

    def next_state(self, orders: Sequence[Order], answers: Sequence[Reply]) -> ServerState:
        """Weigh, combine, receive, step. What the parts staged is written to the store and is part of the next state."""
        state, method = self.state, self.plan.method
        replies, weights = self.weigh(replies_of(orders, answers))
        if not len(replies) and not any(part.keeps_empty_cohorts for part in method.on("upload")):
            return self.unchanged("empty", "no client is left in this round; the model stays as it is")
        combine, server = method.one("combine"), method.one("server")
        mixed = state.vector
        if len(replies):
            try:
                mixed = self.vector_of(combine, "combine", replies.of(combine.key), weights)
            except SkipRound as why:
                return self.unchanged("skipped", f"{why}; the model stays as it is")
        counted = set(replies.ids)
        kept = [reply for reply in answers if reply.client in counted]
        for part in method.on("upload"):
            if defines(part, "release"):
                mixed, replies = self.call(part, "release", mixed, replies.of(part.key))
        for part in method.defining("receive"):
            self.call(part, "receive", replies.of(part.key))
        vector = self.vector_of(server, "step", mixed, replies.of(server.key)).detach().clone()
        if not sound(vector, state.vector):
            return self.unchanged(
                "nonfinite", "the server's step gave a vector that is not finite; the model stays as it is"
            )
        self.vector = vector
        evaluated = self.vector_of(server, "evaluated").detach().clone() if defines(server, "evaluated") else vector
        versions = {**state.versions, **self.staged_rows()}
        versions |= {("state", reply.client): state.round for reply in kept if reply.stateful}
        memories = {**state.memories, **self.memories}
        return ServerState(state.round + 1, vector, evaluated, self.counters(kept), memories, versions)

    def weigh(self, replies: Replies) -> tuple[Replies, list[float]]:
        """The replies that count, and how much each: weights that sum to one, non-negative unless the rule is signed."""
        part, round = self.plan.method.one("weighting"), self.state.round
        if len(replies) > 1:
            raw = self.raw_weights(part, replies)
            usable = [i for i, value in enumerate(raw.tolist()) if math.isfinite(value)]
            for i in set(range(len(replies))) - set(usable):
                self.events.append((round, replies.ids[i], "nonfinite", f"{part.name} gave it the weight {raw[i]}"))
            if len(usable) < len(replies):
                replies, raw = replies.only(usable), raw[usable]
        else:
            raw = torch.ones(len(replies), dtype=torch.float64)
        weights, why = normalised(raw.tolist(), replies.n, part.signed)
        if why:
            self.events.append((round, None, "weights", f"{part.name}: {why}; weights by size instead"))
        key = part.key
        if max(weights, default=0.0) > self.plan.weight_cap and not part.signed:
            for client, weight in zip(replies.ids, weights):
                self.notes.append((round, client, key, "uncapped", as_json(weight)))
            weights = capped(weights, self.plan.weight_cap)
        self.notes += [
            (round, client, key, name, as_json(value))
            for client, *both in zip(replies.ids, weights, replies.loss)
            for name, value in zip(("weight", "loss"), both)
        ]
        return replies, weights

    def raw_weights(self, part: Part, replies: Replies) -> torch.Tensor:
        raw, wanted = self.call(part, "weights", replies.of(part.key)), (len(replies),)
        if not isinstance(raw, torch.Tensor) or raw.shape != wanted or raw.is_complex():
            raise self.wrong(part, "weights", raw, f"a tensor of {len(replies)} numbers, one per reply")
        return raw.double()

    def counters(self, kept: Sequence[Reply]) -> Integers:
        """Shared integer buffers (BatchNorm's counters): the largest that a client sent."""
        shared = [name for name in self.state.integers if name not in self.plan.private_integers and kept]
        largest = {name: torch.stack([reply.integers[name] for reply in kept]).amax(0) for name in shared}
        return {**self.state.integers, **largest}

    def staged_rows(self) -> Versions:
        """Write the staged shelf rows; their new versions."""
        versions: Versions = {}
        for key, rows in self.rows.items():
            for client, row in rows.items():
                self.states.put(f"shelf/{key}", client, self.state.round, row)
                versions[f"shelf/{key}", client] = self.state.round
        return versions

    def unchanged(self, kind: str, why: str) -> ServerState:
        """A round without a result: only its number moves on."""
        self.events.append((self.state.round, None, kind, why))
        return replace(self.state, round=self.state.round + 1)


def quarantine(orders: Sequence[Order], replies: Sequence[Reply], tolerate: bool) -> tuple[list[Reply], list[Event]]:
    """Who counts in this round, and who is left out before anything is touched, and why. A client whose code raises
    ends the run unless `tolerate`."""
    answers, events = list[Reply](), list[Event]()
    by_client = {order.client: order for order in orders}
    for reply in sorted(replies, key=lambda reply: reply.client):
        order = by_client[reply.client]
        if reply.round != order.round:
            continue  # late: it belongs to another round
        kind = why_left_out(order, reply)
        if not kind:
            answers.append(reply)
            continue
        detail = reply.failure.detail if reply.failure else f"the client answered with a {kind} result"
        if kind == "exception" and not tolerate:
            trace = reply.failure.traceback if reply.failure else ""
            raise RunFailed(
                f"client {reply.client} failed in round {reply.round}: {detail}\n\n{trace}\n"
                "--tolerate leaves such a client out and goes on"
            )
        events.append((reply.round, reply.client, kind, detail))
    return answers, events


def why_left_out(order: Order, reply: Reply) -> str:
    """Why a reply may not touch anything ("" where it may)."""
    if reply.failure is not None:
        return reply.failure.kind
    if reply.vector is None or reply.steps == 0:
        return "empty"
    if not math.isfinite(reply.loss) or not math.isfinite(reply.last):
        return "nonfinite"
    return "" if sound(reply.vector, order.vector) else "nonfinite"


def sound(vector: torch.Tensor, before: torch.Tensor) -> bool:
    """Finite in every entry that was finite before: buffers may hold ±inf by design."""
    if math.isfinite(vector.sum()):  # ten times cheaper than looking at every entry, and NaN and inf always show in it
        return True
    finite = torch.isfinite(vector)
    return bool(finite.all()) or bool(finite[torch.isfinite(before)].all())


def replies_of(orders: Sequence[Order], answers: Sequence[Reply]) -> Replies:
    """Replies as the server's hooks see them."""
    by_client = {order.client: order for order in orders}
    keys = sorted({key for reply in answers for key in reply.client_messages})
    return Replies(
        ids=[r.client for r in answers],
        n=[r.n for r in answers],
        vectors=[r.vector for r in answers if r.vector is not None],
        sent=[by_client[r.client].vector for r in answers],
        steps=[r.steps for r in answers],
        effective_steps=[r.effective_steps for r in answers],
        loss=[r.loss for r in answers],
        last=[r.last for r in answers],
        by_part={key: [r.client_messages.get(key, {}) for r in answers] for key in keys},
    )


def first_state(
    plan: Plan, vector: torch.Tensor, integers: Integers, open_round: Callable[[ServerState], ServerRound]
) -> ServerState:
    """The state before round 0: the parts' memories begin here."""
    state = ServerState(0, vector, vector, integers, {}, {})
    server_round = open_round(state)
    parts = plan.method.defining("init_server")
    memories = {part.key: copied(server_round.call(part, "init_server")) for part in parts}
    return replace(state, memories=memories)


def as_json(value: Any) -> str:
    if type(value) is float and math.isfinite(value):  # most values are, and this is what json writes
        return float.__repr__(value)
    return json.dumps(value.tolist() if isinstance(value, torch.Tensor) else value)
