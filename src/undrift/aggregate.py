"""The server's half of a round: rows 9 to 13 of the contract. From replies to the next world, nothing changed in place.

A `World` is everything the server knows between two rounds. A round makes a new one from it, so a round that breaks
leaves nothing behind, and a checkpoint can be written while the next round runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from undrift.context import Plan, Replies, Server, Shelf, Tree, copied
from undrift.declare import Malformed, read
from undrift.errors import RunFailed
from undrift.orders import Order, Reply
from undrift.parts import Part, defines
from undrift.store.record import Event, Note
from undrift.store.states import States
from undrift.vector import Flat, Integers

Versions = dict[tuple[str, int], int]  # (kind, client) -> committed version


@dataclass(frozen=True)
class World:
    round: int  # the next one to do
    vector: torch.Tensor
    judged: torch.Tensor
    integers: Integers
    memories: dict[str, Tree]
    versions: Versions


class Desktop:
    """What the server's hooks work with in one round: windows on the world that stage what they are given."""

    def __init__(
        self,
        plan: Plan,
        world: World,
        states: States,
        model: Callable[[torch.Tensor], Flat],
        proxy: Callable[[], tuple[torch.Tensor, torch.Tensor] | None],
    ) -> None:
        self.plan, self.world, self.states, self.model, self.proxy = plan, world, states, model, proxy
        self.memories: dict[str, Tree] = {}
        self.rows: dict[str, dict[int, Tree]] = {}
        self.notes: list[Note] = []
        self.vector = world.vector

    def window(self, part: Part) -> Server:
        kind = f"shelf/{part.key}"
        versions, round = self.world.versions, self.world.round
        shelf = Shelf(
            lambda client: self.states.get(kind, client, versions[kind, client]),
            lambda: {client for k, client in versions if k == kind},
            self.rows.setdefault(part.key, {}),
        )

        def note(name: str, value: Any, client: int | None = None) -> None:
            self.notes.append((round, client, part.key, name, as_json(value)))

        proxy = self.proxy() if "proxy" in part.needs else None
        return Server(self.plan, round, self.vector, part.key, self.world.memories, self.memories, shelf, self.model,
                      note, proxy)  # fmt: skip

    # ---- before the clients ----------------------------------------------------------------------------------

    def broadcasts(self) -> dict[str, dict[str, Any]]:
        return {
            p.key: self.declared(p, p.broadcast(self.window(p)))
            for p in self.plan.method.parts
            if defines(p, "broadcast")
        }

    def declared(self, part: Part, message: dict[str, Any]) -> dict[str, Any]:
        """What goes down is checked before it leaves, as what comes up is on arrival."""
        try:
            return read(part.key, part.receives, message, self.plan, lambda vector: vector)
        except Malformed as wrong:
            raise RunFailed(f"in round {self.world.round}: {wrong}") from wrong

    def told(self, broadcasts: dict[str, dict[str, Any]], client: int) -> dict[str, dict[str, Any]]:
        told = dict(broadcasts)
        for part in self.plan.method.parts:
            if defines(part, "brief"):
                brief = self.declared(part, part.brief(self.window(part), client))
                told[part.key] = {**told.get(part.key, {}), **brief}
        return told

    def sent_to(self, client: int, position: int) -> torch.Tensor:
        part = self.plan.method.one("server")
        return part.send(self.window(part), client, position) if defines(part, "send") else self.vector

    # ---- after the clients -----------------------------------------------------------------------------------

    def next_world(self, orders: Sequence[Order], answers: Sequence[Reply]) -> tuple[World, list[Event]]:
        """Weigh, combine, gather, step; what the parts staged is written to the store and becomes the next world."""
        world, method = self.world, self.plan.method
        events: list[Event] = []
        replies = replies_of(orders, answers)
        replies, weights = self.weigh(replies, events)
        kept = set(replies.ids)
        if not len(replies):
            events.append((world.round, None, "empty", "no client is left in this round; the model stays as it is"))
            return replace(world, round=world.round + 1), events
        combine, server = method.one("combine"), method.one("server")
        mixed = combine.combine(self.window(combine), replies.of(combine.key), weights)
        for part in method.parts:
            if defines(part, "gather"):
                part.gather(self.window(part), replies.of(part.key))
        vector = server.step(self.window(server), mixed, replies.of(server.key)).detach().clone()
        if not sound(vector, world.vector):
            events.append((world.round, None, "nonfinite", "the server's step gave a vector that is not finite; "
                           "the model stays as it is"))  # fmt: skip
            return replace(world, round=world.round + 1), events
        self.vector = vector
        judged = server.judged(self.window(server)).detach().clone() if defines(server, "judged") else vector
        integers = {
            name: torch.stack([r.integers[name] for r in answers if r.client in kept]).amax(0)
            for name in world.integers if name not in self.plan.private_integers
        }  # fmt: skip
        versions = {**world.versions, **self.staged_rows()}
        versions |= {("state", r.client): world.round for r in answers if r.client in kept and r.stateful}
        memories = {**world.memories, **self.memories}
        return World(world.round + 1, vector, judged, {**world.integers, **integers}, memories, versions), events

    def weigh(self, replies: Replies, events: list[Event]) -> tuple[Replies, list[float]]:
        part = self.plan.method.one("weighting")
        if len(replies) > 1:
            raw = part.weights(self.window(part), replies.of(part.key)).double()
            usable = [i for i in range(len(replies)) if math.isfinite(raw[i])]
            for i in set(range(len(replies))) - set(usable):
                events.append(
                    (self.world.round, replies.ids[i], "nonfinite", f"{part.name} gave it the weight {raw[i]}")
                )
            if len(usable) < len(replies):
                replies, raw = replies.only(usable), raw[usable]
        else:
            raw = torch.ones(len(replies), dtype=torch.float64)
        weights, why = normalised(raw.tolist(), replies.n)
        if why:
            events.append((self.world.round, None, "weights", f"{part.name}: {why}; weights by size instead"))
        for client, weight, loss in zip(replies.ids, weights, replies.loss):
            self.notes.append((self.world.round, client, part.key, "weight", as_json(weight)))
            self.notes.append((self.world.round, client, part.key, "loss", as_json(loss)))
        return replies, weights

    def staged_rows(self) -> Versions:
        versions: Versions = {}
        for key, rows in self.rows.items():
            for client, row in rows.items():
                self.states.put(f"shelf/{key}", client, self.world.round, row)
                versions[f"shelf/{key}", client] = self.world.round
        return versions


def normalised(raw: Sequence[float], n: Sequence[int]) -> tuple[list[float], str]:
    """Weights that are non-negative and sum to one, and why the rule's own could not be used, if so.

    One client gets 1, whatever the rule says (several are 0/0 there). A negative weight or a sum of zero means size
    weights for the whole cohort.

    >>> normalised([1.0, 3.0], [10, 10])
    ([0.25, 0.75], '')
    >>> normalised([-1.0, 3.0], [10, 30])
    ([0.25, 0.75], 'a weight is negative')
    """
    if len(raw) < 2:
        return [1.0] * len(raw), ""
    why = "a weight is negative" if min(raw) < 0 else "the weights sum to zero" if sum(raw) == 0 else ""
    scores = [float(k) for k in n] if why else raw
    total = math.fsum(scores)
    return [score / total for score in scores], why


def quarantined(order: Order, reply: Reply) -> str:
    """Why an answer may not touch anything ("" where it may)."""
    if reply.failure is not None:
        return reply.failure.kind
    if reply.vector is None or reply.steps == 0:
        return "empty"
    if not math.isfinite(reply.loss) or not math.isfinite(reply.last):
        return "nonfinite"
    return "" if sound(reply.vector, order.vector) else "nonfinite"


def sound(vector: torch.Tensor, before: torch.Tensor) -> bool:
    """Finite wherever it was finite before: buffers may hold ±inf by design."""
    if math.isfinite(vector.sum()):  # ten times cheaper than looking at every entry, and NaN and inf always show in it
        return True
    finite = torch.isfinite(vector)
    return bool(finite.all()) or bool(finite[torch.isfinite(before)].all())


def replies_of(orders: Sequence[Order], answers: Sequence[Reply]) -> Replies:
    by_client = {order.client: order for order in orders}
    keys = sorted({key for reply in answers for key in reply.messages})
    return Replies(
        [r.client for r in answers], [r.n for r in answers], [r.vector for r in answers if r.vector is not None],
        [by_client[r.client].vector for r in answers], [r.steps for r in answers], [r.a for r in answers],
        [r.loss for r in answers], [r.last for r in answers], (),
        {key: [r.messages.get(key, {}) for r in answers] for key in keys},
    )  # fmt: skip


def first_world(plan: Plan, vector: torch.Tensor, integers: Integers, desktop: Callable[[World], Desktop]) -> World:
    """The world before round 0: the parts' memories begin here."""
    world = World(0, vector, vector, integers, {}, {})
    desk = desktop(world)
    memories = {p.key: copied(p.memory(desk.window(p))) for p in plan.method.parts if defines(p, "memory")}
    return replace(world, memories=memories)


def as_json(value: Any) -> str:
    return json.dumps(value.tolist() if isinstance(value, torch.Tensor) else value)
