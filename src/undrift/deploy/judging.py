"""Stages of a deployment. Sites judge G, L1 and L2 on their own test part; the server its own test set, if it has one.

L2 comes with the answer to a training order. L1 and a site's G need the new model, so they come one exchange later and
are recorded under the round they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from undrift.aggregate import Desktop, World
from undrift.deploy.sites import Sites
from undrift.evaluate.stages import Judge, named
from undrift.orders import Order, Reply
from undrift.store.record import Metric


@dataclass(frozen=True)
class AtSites:
    judge_: Judge
    engine: Sites

    def is_due(self, round: int) -> bool:
        return self.judge_.is_due(round)

    def population(self, cohort: Sequence[int]) -> list[int]:
        return self.judge_.population(cohort)

    def judge(self, world: World, round: int, cohort: Sequence[int], answers: Sequence[Reply],
              desktop: Callable[[World], Desktop]) -> list[Metric]:  # fmt: skip
        site = self.judge_.site
        rows = self.arrived(self.engine.brought)
        y = site.federation.judged_on("global")[1]
        if len(y) and site.plan.private is None:
            logits = self.judge_.outputs(world, round, "global")
            rows += named(round, None, "G", {"global": site.measure(logits, y)})
        if self.is_due(round):
            rows += self.judge_.verdicts(round, "L2", [r for r in answers if r.client in set(self.population(cohort))])
            rows += self.arrived(self.engine.map(self.orders(world, cohort, desktop)))
        return rows

    def orders(self, world: World, cohort: Sequence[int], desktop: Callable[[World], Desktop]) -> list[Order]:
        """For those judged and for those who only judge; after the last round for everybody."""
        spec, desk = self.engine.spec, desktop(world)
        last = world.round >= self.judge_.site.plan.rounds
        trained = range(len(spec.sites)) if last else self.population(cohort)
        broadcasts = desk.broadcasts()
        told = {client: desk.told(broadcasts, client) for client in trained}
        told |= dict.fromkeys(range(len(spec.sites), len(spec.everybody)), broadcasts)  # nobody briefs who never trains
        return [
            Order("hold", world.round, client, world.judged, world.integers, words,
                  world.versions.get(("state", client)), judge=("own",))
            for client, words in told.items()
        ]  # fmt: skip

    def arrived(self, replies: Sequence[Reply]) -> list[Metric]:
        rows = []
        for reply in replies:
            rows += named(reply.round - 1, reply.client, "L1", {"own": reply.verdicts.get("own", {})})
            rows += named(reply.round - 1, reply.client, "G", {"own": reply.verdicts.get("G", {})})
        return rows
