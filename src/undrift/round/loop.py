"""The server's loop, read top to bottom: select, order, map, quarantine, aggregate, evaluate, record, checkpoint.

There is no `if method == …` here, and no other place where a round happens.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

from undrift.core.headline import ACCURACY
from undrift.core.streams import numpy_stream, system_stream
from undrift.evaluate.diagnose import RoundView, ServerWork, counter, observe_round
from undrift.round.engine import Engine
from undrift.round.orders import Order, Reply
from undrift.round.runtime import Runtime
from undrift.round.selection import Selection, cohort_of
from undrift.round.server import ServerRound, first_state, quarantine
from undrift.round.untrusted import careful_round
from undrift.store.record import Event, Metric, Note
from undrift.store.run_store import RunStore
from undrift.store.server_state import ServerState

OpenRound = Callable[[ServerState], ServerRound]
OnRound = Callable[[int, int, float, float | None], None]  # round, of how many, seconds, headline
OnMetrics = Callable[[int, float, Sequence[Metric]], None]  # round, seconds, what was evaluated


class Clock:
    """Where the time of a round goes, without what an engine spends on other runs."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.spent: dict[str, float] = {}
        self._last = self.now()

    def now(self) -> float:
        return time.perf_counter() - self.engine.elsewhere

    def lap(self, name: str, replies: Sequence[Reply] = ()) -> None:
        now = self.now()
        self.spent[name] = self.spent.get(name, 0.0) + now - self._last
        for kind in ("training", "scoring", "judging"):
            self.spent[kind] = self.spent.get(kind, 0.0) + sum(reply.spent.get(kind, 0.0) for reply in replies)
        self._last = now

    def since(self, before: Mapping[str, float]) -> dict[str, float]:
        """What was spent since `spent` was as `before`."""
        return {name: seconds - before.get(name, 0.0) for name, seconds in self.spent.items()}

    def evaluation_share(self) -> float:
        """Evaluation's share of all time so far: after the clients' work, and as a part of it."""
        walls = sum(self.spent.get(name, 0.0) for name in ("orders", "clients", "aggregation", "evaluation", "store"))
        work = sum(self.spent.get(name, 0.0) for name in ("training", "scoring", "judging"))
        within = self.spent.get("clients", 0.0) * self.spent.get("judging", 0.0) / work if work else 0.0
        return (self.spent.get("evaluation", 0.0) + within) / walls if walls else 0.0


class Evaluator(Protocol):
    """Which clients are evaluated, when, and on what."""

    def is_due(self, round: int) -> bool: ...
    def population(self, cohort: Sequence[int]) -> list[int]: ...
    def evaluate(
        self, state: ServerState, round: int, cohort: Sequence[int], answers: Sequence[Reply], open_round: OpenRound
    ) -> list[Metric]: ...


@dataclass(frozen=True)
class RoundResult:
    """The state after a round, and what there is to record of it."""

    state: ServerState
    cohort: Sequence[int]
    metrics: list[Metric]
    notes: list[Note]
    events: list[Event]


class Loop:
    """The rounds of one run. `experiment.setup.Setup.loop` makes it from a run's options."""

    def __init__(
        self,
        runtime: Runtime,
        engine: Engine,
        store: RunStore,
        selection: Selection,
        evaluator: Evaluator,
        on_round: OnRound | None = None,
        tolerate: bool = False,
        stop_at: float | None = None,
        on_metrics: OnMetrics | None = None,
    ) -> None:
        self.runtime, self.engine, self.store, self.selection = runtime, engine, store, selection
        self.evaluator, self.on_round, self.tolerate, self.stop_at = evaluator, on_round, tolerate, stop_at
        self.on_metrics = on_metrics
        self.plan = runtime.plan
        self.clock = Clock(engine)

    def begin(self) -> ServerState:
        """The state before round 0, made durable."""
        self.store.record.name_clients(self.runtime.federation.names)
        vector = self.runtime.initial.cpu().clone()
        state = first_state(self.plan, vector, self.runtime.model.integers(), self.open_round)
        if self.store.due(state):
            self.store.checkpoint(state, wait=True)
        return state

    def run(self, state: ServerState) -> ServerState:
        """Rounds until the last one. Whatever ends them, the last committed state is made durable."""
        began = self.clock.now()
        try:
            while state.round < self.plan.rounds:
                before = dict(self.clock.spent)
                result = self.one_round(state)
                seconds = self.clock.now() - began
                self.store.record.commit_round(
                    state.round,
                    seconds,
                    self.plan.rate(state.round),
                    result.cohort,
                    result.metrics,
                    [*result.notes, *self.headline_note(state.round)],
                    result.events,
                    self.clock.since(before),
                )
                began, state = self.clock.now(), result.state
                elsewhere = self.engine.elsewhere
                if self.store.due(state, elsewhere):
                    self.store.checkpoint(state, elsewhere=elsewhere)
                self.clock.lap("store")
                if self.on_metrics is not None:
                    self.on_metrics(state.round - 1, seconds, result.metrics)
                if self.on_round is not None:
                    self.on_round(
                        state.round - 1,
                        self.plan.rounds,
                        seconds,
                        headline_value(result.metrics, self.plan.task.headline),
                    )
                if self.reached(result.metrics):
                    break
        finally:
            self.store.last_checkpoint(state)
        return state

    def one_round(self, state: ServerState) -> RoundResult:
        """One round: from a state to the next, and what there is to record."""
        round = state.round
        draws = system_stream() if self.plan.secret else numpy_stream(self.plan.seed, "cohort", round)
        cohort = cohort_of(self.selection, draws, self.plan.clients, round)
        server_round = self.open_round(state)
        orders = self.orders(server_round, cohort)
        self.clock.lap("orders")
        replies = self.engine.map(orders)
        self.clock.lap("clients", replies)
        answers, events = quarantine(orders, replies, self.tolerate)
        notes = [(round, reply.client, *note) for reply in answers for note in reply.notes]
        diagnostics = self.runtime.diagnostics if self.evaluator.is_due(round) else ()
        with counter(diagnostics) as counted:
            if self.engine.trusted:
                after = server_round.next_state(orders, answers)
            else:
                server_round, after = careful_round(self.open_round, state, orders, answers)
        self.store.forget_rows(state, after)
        self.clock.lap("aggregation")
        view = (
            self.view(server_round, after, orders, answers, counted.work if counted else ServerWork())
            if diagnostics
            else None
        )
        self.engine.aggregated(replies)
        metrics = self.evaluator.evaluate(after, round, cohort, answers, self.open_round)
        last = after.round == self.plan.rounds or self.reached(metrics)
        found, pictures = observe_round(diagnostics, view, self.engine, last) if view else ([], [])
        self.clock.lap("evaluation")
        events += server_round.events + [(round, None, *event) for event in self.engine.events()]
        metrics = metrics + training_loss(round, answers) + found
        return RoundResult(after, cohort, metrics, notes + server_round.notes + pictures, events)

    def open_round(self, state: ServerState) -> ServerRound:
        return ServerRound(self.plan, state, self.store.states, self.runtime.lent, self.runtime.proxy)

    def orders(self, server_round: ServerRound, cohort: Sequence[int]) -> list[Order]:
        """One training order per client of the cohort."""
        state, broadcasts = server_round.state, server_round.broadcasts()
        evaluated = set(self.evaluator.population(cohort)) if self.evaluator.is_due(state.round) else set()
        sizes = self.runtime.federation.sizes[list(cohort)].tolist()
        return [
            Order(
                work="train",
                round=state.round,
                client=client,
                vector=server_round.model_for(client, position),
                integers=state.integers,
                server_messages=server_round.messages_for(broadcasts, client),
                state_round=state.versions.get(("state", client)),
                keep_round=self.store.keep_round("state", client, state),
                evaluate_on=self.plan.evaluate_on if client in evaluated else (),
                size=size,
            )
            for position, (client, size) in enumerate(zip(cohort, sizes))
        ]

    def view(
        self,
        server_round: ServerRound,
        after: ServerState,
        orders: Sequence[Order],
        answers: Sequence[Reply],
        server_work: ServerWork,
    ) -> RoundView:
        """An evaluated round for the diagnostics. Vectors are copied: an engine may reuse their memory while the round
        is evaluated."""
        copies = [replace(reply, vector=reply.vector.clone()) for reply in answers if reply.vector is not None]
        weights = {
            client: json.loads(value)
            for _, client, _, name, value in server_round.notes
            if name == "weight" and client is not None
        }
        next_round = self.open_round(after)
        broadcasts = cache(next_round.broadcasts)
        return RoundView(
            self.runtime,
            server_round.state,
            after,
            orders,
            copies,
            weights,
            lambda client: next_round.messages_for(broadcasts(), client),
            server_work,
        )

    def reached(self, metrics: Sequence[Metric]) -> bool:
        """Whether the headline on validation data has reached what the run stops at."""
        task, goal = self.plan.task.shown, self.stop_at
        return goal is not None and any(
            stage == "G" and data == "validation" and metric == task.name and task.sign * value >= task.sign * goal
            for _, _, stage, data, metric, value in metrics
        )

    def headline_note(self, round: int) -> list[Note]:
        """What ranks this run, for whoever reads its record. Accuracy goes without saying."""
        shown = self.plan.task.shown
        return [(0, None, "task", "headline", json.dumps(vars(shown)))] if round == 0 and shown != ACCURACY else []


def training_loss(round: int, answers: Sequence[Reply]) -> list[Metric]:
    """The clients' mean loss over their local epochs, by their numbers of samples."""
    known = [(reply.n, reply.loss) for reply in answers if math.isfinite(reply.loss)]
    total = sum(size for size, _ in known)
    return [(round, None, "train", "train", "loss", sum(n * loss for n, loss in known) / total)] if total else []


def headline_value(metrics: Sequence[Metric], name: str) -> float | None:
    """Stage G's headline on the whole test set, where a global model exists."""
    for _, client, stage, data, metric, value in metrics:
        if client is None and stage == "G" and data == "global" and metric == name and not math.isnan(value):
            return value
    return None
