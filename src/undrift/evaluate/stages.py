"""The stages of a round, always by the same names (DESIGN 5).

    L2   what a client holds after its local training in round t
    G    the judged global model after aggregation
    L1   what a client holds after receiving the new model and personalizing it

L1 and L2 are judged per client on its own test slice (Acc(L)) and on the whole test set (Acc(G)). Without a Personalize
part and without private entries L1 *is* the judged model, so one pass over the test set serves G and every L1.
Newcomers (clients that never train with the others) are judged on their own slice ("unseen"): with the global model as
it is (G), and after they fine-tuned it on their own data (L2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from undrift.aggregate import Desktop, World
from undrift.engine.base import Engine
from undrift.evaluate.judge import Verdicts, own, stretches, whole
from undrift.orders import Order, Reply
from undrift.site import Site
from undrift.store.record import Metric
from undrift.streams import numpy_stream


@dataclass(frozen=True)
class Judge:
    """Who is judged, when, on what."""

    site: Site
    engine: Engine
    every: int
    clients: str | int  # "cohort", "all" or a number

    def is_due(self, round: int) -> bool:
        return (round + 1) % self.every == 0 or round + 1 == self.site.plan.rounds

    def population(self, cohort: Sequence[int]) -> list[int]:
        if self.clients == "cohort":
            return list(cohort)
        everybody = self.site.plan.clients
        if self.clients == "all" or int(self.clients) >= everybody:
            return list(range(everybody))
        drawn = numpy_stream(self.site.plan.seed, "judged clients").choice(everybody, int(self.clients), replace=False)
        return sorted(int(client) for client in drawn)

    def judge(self, world: World, round: int, cohort: Sequence[int], answers: Sequence[Reply],
              desktop: Callable[[World], Desktop]) -> list[Metric]:  # fmt: skip
        """All rows of one round; `world` is the committed one, `answers` those that passed quarantine."""
        plan, rows = self.site.plan, list[Metric]()
        logits, verdicts = None, Verdicts()
        if plan.private is None:
            logits = self.outputs(world, round, "global")
            verdicts = whole(self.site, logits, ranks=self.is_due(round))
            rows += named(round, None, "G", verdicts)
            if self.site.federation.validation:
                y = self.site.federation.judged_on("validation")[1]
                found = self.site.measure(self.outputs(world, round, "validation"), y)
                rows += named(round, None, "G", {"validation": found})
        if not self.is_due(round):
            return rows
        population = self.population(cohort)
        rows += self.after_training(world, round, population, answers)
        same = plan.private is None and plan.method.one("personalize") is None
        if same and self.site.federation.elsewhere is None:
            assert logits is not None
            for client in population:
                rows += named(round, client, "L1", verdicts | own(self.site, client, logits))
        else:
            rows += self.after_receiving(world, round, population, desktop)
        return rows + self.newcomers(world, round, logits)

    def outputs(self, world: World, round: int, data: str) -> torch.Tensor:
        size = len(self.site.federation.judged_on(data)[1])
        orders = [Order("judge", round, -1 - i, world.judged, world.integers, span=span, data=data, size=span[1] - span[0])
                  for i, span in enumerate(stretches(size))]  # fmt: skip
        pieces = [reply.logits for reply in self.engine.map(orders) if reply.logits is not None]
        if len(pieces) < len(orders):
            raise RuntimeError(f"the global model could not be judged on {data}")
        return torch.cat(pieces)

    def after_receiving(self, world: World, round: int, population: Sequence[int],
                        desktop: Callable[[World], Desktop]) -> list[Metric]:  # fmt: skip
        """Row 14 of the contract: rows 3 and 4 as the next round would run them, with the judged vector."""
        desk = desktop(world)
        broadcasts = desk.broadcasts()
        orders = [
            Order("hold", world.round, client, world.judged, world.integers, desk.told(broadcasts, client),
                  world.versions.get(("state", client)), judge=("own", "global"), size=self.size())
            for client in population
        ]  # fmt: skip
        return self.verdicts(round, "L1", self.engine.map(orders))

    def after_training(
        self, world: World, round: int, population: Sequence[int], answers: Sequence[Reply]
    ) -> list[Metric]:
        """Who trained was judged where it trained; an absent client still holds what it trained last."""
        rows = self.verdicts(round, "L2", [reply for reply in answers if reply.client in set(population)])
        trained = {reply.client for reply in answers}
        absent = [client for client in population if client not in trained and ("state", client) in world.versions]
        orders = [
            Order("hold", world.round, client, world.judged, world.integers, {}, world.versions["state", client],
                  judge=("own", "global"), data="held", size=self.size())
            for client in absent
        ]  # fmt: skip
        return rows + self.verdicts(round, "L2", self.engine.map(orders))

    def newcomers(self, world: World, round: int, logits: torch.Tensor | None) -> list[Metric]:
        """Clients held out of training, with the judged model: as it is, and fine-tuned on their own data."""
        clients = self.site.federation.newcomers
        if not clients:
            return []
        rows = []
        if logits is not None:
            for client in clients:
                rows += named(round, client, "G", {"unseen": own(self.site, client, logits).get("own", {})})
        orders = [Order("tune", world.round, client, world.judged, world.integers,
                        size=len(self.site.federation.rows(client))) for client in clients]  # fmt: skip
        return rows + self.verdicts(round, "L2", self.engine.map(orders))

    def verdicts(self, round: int, stage: str, replies: Sequence[Reply]) -> list[Metric]:
        return [row for reply in replies for row in named(round, reply.client, stage, reply.verdicts)]

    def size(self) -> int:
        return len(self.site.federation.test_y)


def named(round: int, client: int | None, stage: str, verdicts: Verdicts) -> list[Metric]:
    return [(round, client, stage, data, metric, value)
            for data, found in sorted(verdicts.items()) for metric, value in found.items()]  # fmt: skip
