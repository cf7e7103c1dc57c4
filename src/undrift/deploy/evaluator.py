"""Evaluation in a deployment. Sites evaluate G, L1 and L2 on their own test part. If the server has a test set, it
evaluates G there.

L2 comes with the reply to a training order. L1 and a site's G need the new model, so they come one exchange later. They
are recorded under the round they belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from undrift.deploy.sites import SitesEngine
from undrift.evaluate.orders import of_personal_models
from undrift.evaluate.stages import StageEvaluator, named
from undrift.round.loop import OpenRound
from undrift.round.orders import Order, Reply
from undrift.store.record import Metric
from undrift.store.server_state import ServerState


@dataclass(frozen=True)
class SiteEvaluator:
    """The loop's evaluator in a deployment: local metrics come from the sites."""

    stages: StageEvaluator
    engine: SitesEngine

    def is_due(self, round: int) -> bool:
        return self.stages.is_due(round)

    def population(self, cohort: Sequence[int]) -> list[int]:
        return self.stages.population(cohort)

    def evaluate(
        self, state: ServerState, round: int, cohort: Sequence[int], answers: Sequence[Reply], open_round: OpenRound
    ) -> list[Metric]:
        runtime = self.stages.runtime
        rows = self.metrics_of(self.engine.evaluation_replies)
        y = runtime.federation.evaluation_set("global")[1]
        if len(y) and runtime.plan.private is None:
            logits = self.stages.logits(state, round, "global")
            rows += named(round, None, "G", {"global": runtime.measure(logits, y)})
        if self.is_due(round):
            evaluated = set(self.population(cohort))
            rows += self.stages.of_clients(round, "L2", [reply for reply in answers if reply.client in evaluated])
            rows += self.metrics_of(self.engine.map(self.orders(state, cohort, open_round)))
        return rows

    def orders(self, state: ServerState, cohort: Sequence[int], open_round: OpenRound) -> list[Order]:
        """Orders to evaluate the new model: for the sites evaluated in this round and those that never train, after the
        last round for every site."""
        spec, server_round = self.engine.spec, open_round(state)
        last = state.round >= self.stages.runtime.plan.rounds
        trained = range(len(spec.sites)) if last else self.population(cohort)
        broadcasts = server_round.broadcasts()
        messages = {client: server_round.messages_for(broadcasts, client) for client in trained}
        never_train = range(len(spec.sites), len(spec.all_sites))
        messages |= dict.fromkeys(never_train, broadcasts)  # without a message of their own
        return of_personal_models(state, messages, evaluate_on=("own",))

    def metrics_of(self, replies: Sequence[Reply]) -> list[Metric]:
        """L1 and a site's G, under the round before the one the replies came in."""
        rows = []
        for reply in replies:
            rows += named(reply.round - 1, reply.client, "L1", {"own": reply.metrics.get("own", {})})
            rows += named(reply.round - 1, reply.client, "G", {"own": reply.metrics.get("G", {})})
        return rows
