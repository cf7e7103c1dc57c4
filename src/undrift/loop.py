"""The server's loop, read top to bottom: select, order, map, quarantine, aggregate, judge, record, checkpoint.

There is no `if method == …` here, and no other place where a round happens.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Protocol

from undrift.aggregate import Desktop, World, first_world, quarantined
from undrift.engine.base import Engine
from undrift.errors import RunFailed
from undrift.evaluate.diagnose import Happened, counter, look_at
from undrift.evaluate.stages import Judge
from undrift.orders import Order, Reply
from undrift.setup import Setup
from undrift.store.record import Event, Metric, Note
from undrift.store.vault import Vault
from undrift.streams import numpy_stream


class Watcher(Protocol):
    """Whoever wants to see a run go by."""

    def round(self, round: int, rounds: int, seconds: float, accuracy: float | None) -> None: ...


class Clock:
    """Where the time of a round goes."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str, replies: Sequence[Reply] = ()) -> None:
        now = time.perf_counter()
        self.spent[name] = self.spent.get(name, 0.0) + now - self._last
        for kind in ("training", "scoring", "judging"):
            self.spent[kind] = self.spent.get(kind, 0.0) + sum(reply.spent.get(kind, 0.0) for reply in replies)
        self._last = now

    def since(self, before: Mapping[str, float]) -> dict[str, float]:
        """What was spent since `spent` was as `before`."""
        return {name: seconds - before.get(name, 0.0) for name, seconds in self.spent.items()}

    def evaluation_share(self) -> float:
        """Of all time so far: what was judged after the clients' work, and their own judging as a part of it."""
        walls = sum(self.spent.get(name, 0.0) for name in ("orders", "clients", "aggregation", "evaluation", "store"))
        work = sum(self.spent.get(name, 0.0) for name in ("training", "scoring", "judging"))
        within = self.spent.get("clients", 0.0) * self.spent.get("judging", 0.0) / work if work else 0.0
        return (self.spent.get("evaluation", 0.0) + within) / walls if walls else 0.0


class Judging(Protocol):
    """Who is judged, when, on what."""

    def is_due(self, round: int) -> bool: ...
    def population(self, cohort: Sequence[int]) -> list[int]: ...
    def judge(self, world: World, round: int, cohort: Sequence[int], answers: Sequence[Reply],
              desktop: Callable[[World], Desktop]) -> list[Metric]: ...  # fmt: skip


class Loop:
    def __init__(
        self, setup: Setup, engine: Engine, vault: Vault, watcher: Watcher | None = None, judge: Judging | None = None
    ) -> None:
        self.setup, self.engine, self.vault, self.watcher = setup, engine, vault, watcher
        self.plan, self.site = setup.plan, setup.site
        self.clock = Clock()
        self.judge = judge or Judge(setup.site, engine, setup.options.evaluate_every, setup.options.evaluate_clients)

    def begin(self) -> World:
        """The world before round 0, made durable."""
        vector = self.site.initial.cpu().clone()
        world = first_world(self.plan, vector, self.site.model.integers(), self.desktop)
        if self.vault.due(world):
            self.vault.checkpoint(world, wait=True)
        return world

    def run(self, world: World) -> World:
        """Rounds until the last one. Whatever ends them, the last committed world is made durable."""
        began = time.perf_counter()
        try:
            while world.round < self.plan.rounds:
                before = dict(self.clock.spent)
                after, rows, notes, events, cohort = self.one_round(world)
                seconds = time.perf_counter() - began
                rate = self.plan.rate(world.round)
                times = self.clock.since(before)
                self.vault.record.commit_round(world.round, seconds, rate, cohort, rows, notes, events, times)
                began, world = time.perf_counter(), after
                if self.vault.due(world):
                    self.vault.checkpoint(world)
                self.clock.lap("store")
                if self.watcher is not None:
                    self.watcher.round(world.round - 1, self.plan.rounds, seconds, accuracy(rows))
                if self.reached(rows):
                    break
        finally:
            self.vault.last_checkpoint(world)
        return world

    def one_round(self, world: World) -> tuple[World, list[Metric], list[Note], list[Event], list[int]]:
        """One round: from a world to the next, and what there is to record."""
        cohort = self.setup.selection.choose(numpy_stream(self.plan.seed, "cohort", world.round), self.plan.clients)
        desk = self.desktop(world)
        orders = self.orders(world, desk, cohort)
        self.clock.lap("orders")
        replies = self.engine.map(orders)
        self.clock.lap("clients", replies)
        answers, events = self.quarantine(orders, replies)
        notes = [(world.round, r.client, *note) for r in answers for note in r.notes]
        diagnostics = self.site.diagnostics if self.judge.is_due(world.round) else []
        with counter(diagnostics) as counted:
            after, more = desk.next_world(orders, answers)
        self.vault.forget_rows(world, after)
        self.clock.lap("aggregation")
        written = counted.numbers if counted else 0
        seen = self.happened(world, after, orders, answers, desk.notes, written) if diagnostics else None
        rows = self.judge.judge(after, world.round, cohort, answers, self.desktop)
        last = after.round == self.plan.rounds or self.reached(rows)
        found, pictures = look_at(diagnostics, seen, self.engine, last) if seen else ([], [])
        self.clock.lap("evaluation")
        broken = [(world.round, None, kind, sentence) for kind, sentence in self.engine.events()]
        return after, rows + found, notes + desk.notes + pictures, events + more + broken, cohort

    def desktop(self, world: World) -> Desktop:
        return Desktop(self.plan, world, self.vault.states, self.site.lent, self.site.proxy)

    def orders(self, world: World, desk: Desktop, cohort: Sequence[int]) -> list[Order]:
        broadcasts = desk.broadcasts()
        judged = set(self.judge.population(cohort)) if self.judge.is_due(world.round) else set()
        return [
            Order(
                "train", world.round, client, desk.sent_to(client, position), world.integers,
                desk.told(broadcasts, client), world.versions.get(("state", client)),
                self.vault.keep_round("state", client, world), judge=("own", "global") if client in judged else (),
                size=int(self.setup.federation.sizes[client]),
            )
            for position, client in enumerate(cohort)
        ]  # fmt: skip

    def happened(self, before: World, after: World, orders: Sequence[Order], answers: Sequence[Reply],
                 notes: Sequence[Note], written: int) -> Happened:  # fmt: skip
        """A judged round for the diagnostics. Vectors are copied: an engine may use their memory again while the round is
        judged."""
        copies = [replace(reply, vector=reply.vector.clone()) for reply in answers if reply.vector is not None]
        weights = {
            client: json.loads(value) for _, client, _, name, value in notes if name == "weight" and client is not None
        }
        desk = self.desktop(after)
        broadcasts = cache(desk.broadcasts)
        return Happened(
            self.site, before, after, orders, copies, weights, lambda k: desk.told(broadcasts(), k), written
        )

    def quarantine(self, orders: Sequence[Order], replies: Sequence[Reply]) -> tuple[list[Reply], list[Event]]:
        """Row 9: who is left out of this round, before anything is touched, and why."""
        answers, events = list[Reply](), list[Event]()
        by_client = {order.client: order for order in orders}
        for reply in sorted(replies, key=lambda reply: reply.client):
            order = by_client[reply.client]
            if reply.round != order.round:
                continue  # late: it belongs to another round
            kind = quarantined(order, reply)
            if not kind:
                answers.append(reply)
                continue
            detail = reply.failure.detail if reply.failure else f"the client answered with a {kind} result"
            if kind == "exception" and not self.setup.options.tolerate:
                trace = reply.failure.traceback if reply.failure else ""
                raise RunFailed(
                    f"client {reply.client} failed in round {reply.round}: {detail}\n\n{trace}\n"
                    "--tolerate leaves such a client out and goes on"
                )
            events.append((reply.round, reply.client, kind, detail))
        return answers, events

    def reached(self, rows: Sequence[Metric]) -> bool:
        goal = self.setup.options.stop_at
        return goal is not None and any(
            stage == "G" and data == "validation" and metric == "accuracy" and value >= goal
            for _, _, stage, data, metric, value in rows
        )


def accuracy(rows: Sequence[Metric]) -> float | None:
    """Stage G's accuracy on the whole test set, where a global model exists."""
    for _, client, stage, data, metric, value in rows:
        if client is None and stage == "G" and data == "global" and metric == "accuracy" and not math.isnan(value):
            return value
    return None
