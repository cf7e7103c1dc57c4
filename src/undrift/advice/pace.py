"""A budget in minutes while the race goes on: the plan is cut to what the time still pays for.

The first rounds of a race are a poor guess of how fast it will be: contenders differ, and a machine gets busier. So the plan is
looked at again before and within every heat, with the seconds that a round took since the last look. Only seeds are cut,
because that is what the plans differ in. What is left out never depends on a score, so nothing is peeked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from undrift.advice.budget import Plan


class Pace:
    """Cuts a plan to the time that is left. `rounds_run` counts the rounds of the race so far."""

    def __init__(
        self,
        seconds: float,
        offered: Sequence[Plan],
        rounds_run: Callable[[], int],
        began: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.end, self.offered, self.rounds_run, self.clock = began + seconds, offered, rounds_run, clock
        self.mark, self.speed = (clock(), rounds_run()), 0.0  # seconds of a round
        self.planned: Plan | None = None

    def look(self) -> None:
        """Measure how long a round took since the last look."""
        now, rounds = self.clock(), self.rounds_run()
        if rounds > self.mark[1]:
            self.speed = (now - self.mark[0]) / (rounds - self.mark[1])
        self.mark = (now, rounds)

    def cut(self, plan: Plan, stage: int, least: int = 0, done: int = 0) -> Plan:
        """The plan from this stage on: the dearest that the time pays for, never dearer than the one that was chosen first.
        `least` seeds of the stage have been run, at a cost of `done` rounds. A heat that the time left does not pay for is left
        out. Fresh seeds are never fewer than those of the smallest plan: without them there is no answer."""
        self.look()
        self.planned = self.planned or plan
        left = self.end - self.mark[0]
        choices = [self.like(plan, smaller, stage, least) for smaller in reversed(self.offered)]
        shortest = choices[-1]
        heat = stage < len(plan.heats) and stage > 0 and not least
        if heat and self.speed * shortest.stages()[stage] > left:
            shortest = shortest.with_heat(stage, 0)
        fitting = (one for one in choices if self.speed * (sum(one.stages()[stage:]) - done) <= left)
        return next(fitting, shortest)

    def fresh(self, plan: Plan, run: Callable[[int], object]) -> Plan:
        """The plan after the fewest fresh seeds have run, whose time says how many more there are."""
        plan, stage = self.cut(plan, len(plan.heats)), len(plan.heats)
        least = min(plan.fresh, self.offered[0].fresh)
        run(least)
        return self.cut(plan, stage, least, 2 * least * plan.rounds)

    def like(self, plan: Plan, smaller: Plan, stage: int, least: int) -> Plan:
        """A plan with as many seeds from a stage on as a smaller one has, where that is fewer than planned."""
        assert self.planned is not None
        for number in range(stage, len(plan.heats)):
            seeds = min(self.planned.heats[number].seeds, smaller.heats[number].seeds)
            plan = plan.with_heat(number, max(plan.least_seeds(number), seeds))
        fresh = max(least if stage == len(plan.heats) else 0, min(self.planned.fresh, smaller.fresh))
        return replace(plan, fresh=fresh)
