"""The stages of a round, always by the same names.

    L2   what a client uses after its local training in round t
    G    the evaluated global model after aggregation
    L1   what a client uses after receiving the new model and personalizing it

L1 and L2 are evaluated per client on its own test slice (Acc(L)) and on the whole test set (Acc(G)), or on its own
validation part instead of the latter. Without a Personalize part and without private entries L1 *is* the global model, so
one pass over the test set (and one over the validation set) serves G and every L1. Newcomers (clients that never train with
the others) are evaluated on their own slice ("unseen"): with the global model as it is (G), and after they fine-tuned it on
their own data (L2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from undrift.core import samples
from undrift.core.errors import RunFailed
from undrift.core.streams import numpy_stream
from undrift.evaluate import orders
from undrift.evaluate.client import Metrics, global_metrics, slice_metrics, validation_metrics
from undrift.round.engine import Engine
from undrift.round.orders import Reply
from undrift.round.runtime import Runtime
from undrift.store.record import Metric
from undrift.store.server_state import ServerState

if TYPE_CHECKING:
    from undrift.round.loop import OpenRound


@dataclass(frozen=True)
class StageEvaluator:
    """Evaluates every stage on the engine's workers: clients every so many rounds, stage G in each."""

    runtime: Runtime
    engine: Engine
    every: int
    clients: str | int  # "cohort", "all" or a number
    at: Sequence[int] = ()  # and after these rounds

    def is_due(self, round: int) -> bool:
        done = round + 1
        return done % self.every == 0 or done == self.runtime.plan.rounds or done in self.at

    def population(self, cohort: Sequence[int]) -> list[int]:
        if self.clients == "cohort":
            return list(cohort)
        everybody = self.runtime.plan.clients
        if self.clients == "all" or int(self.clients) >= everybody:
            return list(range(everybody))
        stream = numpy_stream(self.runtime.plan.seed, "judged clients")
        return sorted(int(client) for client in stream.choice(everybody, int(self.clients), replace=False))

    def evaluate(
        self, state: ServerState, round: int, cohort: Sequence[int], answers: Sequence[Reply], open_round: OpenRound
    ) -> list[Metric]:
        """All metrics of one round; `state` is the committed one, `answers` are those that passed quarantine."""
        plan, federation = self.runtime.plan, self.runtime.federation
        logits = None if plan.private is not None else self.logits(state, round, "global")
        rows, on_global, held = list[Metric](), Metrics(), None
        if logits is not None:
            on_global = global_metrics(self.runtime, logits, quick=not self.is_due(round))
            rows += named(round, None, "G", on_global)
            if federation.validation:
                held = self.logits(state, round, "validation")
                found = self.runtime.measure(held, federation.evaluation_labels("validation"))
                rows += named(round, None, "G", {"validation": found})
        if not self.is_due(round):
            return rows
        population = self.population(cohort)
        rows += self.after_training(state, round, population, answers)
        if logits is not None and self.one_model_for_all():
            whole = on_global if "global" in plan.evaluate_on else {}
            for client in population:
                own = slice_metrics(self.runtime, client, logits)
                if held is not None and "validation" in plan.evaluate_on:
                    own |= validation_metrics(self.runtime, client, held)
                rows += named(round, client, "L1", whole | own)
        else:
            rows += self.after_receiving(state, round, population, open_round)
        return rows + self.newcomers(state, round, logits)

    def one_model_for_all(self) -> bool:
        """Whether stage L1 can be read from the global model's outputs on whole sets."""
        plan, federation = self.runtime.plan, self.runtime.federation
        if plan.method.one("personalize") is not None or federation.lazy_clients is not None:
            return False
        return "validation" not in plan.evaluate_on or len(federation.validators) == federation.clients

    def logits(self, state: ServerState, round: int, data: str) -> torch.Tensor:
        """Of the evaluated model on a whole set."""
        asked = orders.of_spans(state, round, data, len(self.runtime.federation.evaluation_labels(data)))
        replies = self.engine.map(asked)
        pieces = [reply.logits for reply in replies if reply.logits is not None]
        if len(pieces) < len(asked):
            why = next(
                (reply.failure.detail for reply in replies if reply.failure is not None), "a worker did not answer"
            )
            raise RunFailed(f"the global model could not be evaluated on the {data} data: {why}")
        return samples.stacked_outputs(pieces)

    def after_receiving(
        self, state: ServerState, round: int, population: Sequence[int], open_round: OpenRound
    ) -> list[Metric]:
        """Stage L1: the clients prepare as in the next round, with the evaluated vector."""
        next_round, plan = open_round(state), self.runtime.plan
        broadcasts = next_round.broadcasts()
        messages = {client: next_round.messages_for(broadcasts, client) for client in population}
        return self.of_clients(
            round, "L1", self.engine.map(orders.of_personal_models(state, messages, plan.evaluate_on, self.size()))
        )

    def after_training(
        self, state: ServerState, round: int, population: Sequence[int], answers: Sequence[Reply]
    ) -> list[Metric]:
        """Stage L2: clients that trained were evaluated where they trained; an absent one uses what it trained last."""
        rows = self.of_clients(round, "L2", [reply for reply in answers if reply.client in set(population)])
        trained = {reply.client for reply in answers}
        absent = [client for client in population if client not in trained and ("state", client) in state.versions]
        asked = orders.of_last_trained(state, absent, self.runtime.plan.evaluate_on, self.size())
        return rows + self.of_clients(round, "L2", self.engine.map(asked))

    def newcomers(self, state: ServerState, round: int, logits: torch.Tensor | None) -> list[Metric]:
        """Clients held out of training: with the evaluated model as it is, and fine-tuned on their own data."""
        federation = self.runtime.federation
        if not federation.newcomers:
            return []
        rows = []
        if logits is not None:
            for client in federation.newcomers:
                own = slice_metrics(self.runtime, client, logits)
                rows += named(round, client, "G", {"unseen": own.get("own", {})})
        sizes = {client: len(federation.rows(client)) for client in federation.newcomers}
        return rows + self.of_clients(round, "L2", self.engine.map(orders.of_newcomers(state, sizes)))

    def of_clients(self, round: int, stage: str, replies: Sequence[Reply]) -> list[Metric]:
        return [row for reply in replies for row in named(round, reply.client, stage, reply.metrics)]

    def size(self) -> int:
        return len(self.runtime.federation.test_y)


def named(round: int, client: int | None, stage: str, metrics: Metrics) -> list[Metric]:
    """Metrics as rows of the record."""
    return [
        (round, client, stage, data, metric, value)
        for data, found in sorted(metrics.items())
        for metric, value in found.items()
    ]
