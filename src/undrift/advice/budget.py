"""What a race may cost, and the plan that a budget pays for.

A plan is a list of heats with growing rounds and seeds. Runs are continued from heat to heat, never trained twice. A budget in
minutes chooses a plan from the time that a few rounds took, and `pace.py` cuts its seeds while the race goes on. What it came
to is written down in rounds, one number per heat and one for the fresh seeds if the plan was cut (`252r+90r+480r`), so that
the answer can be repeated on another machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from undrift.core.errors import BadRequest
from undrift.core.words import clock, shown

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
PROBE = 2  # rounds that every method runs first, to see how long they take
MOST_IN_LAST = 3  # methods beside plain averaging and the compositions
HALVING = 3  # of the methods in a heat, one in so many goes on
FIRST = 0.5  # the first heat runs this share of the rounds: the best rate after fewer is often too large
COMPOSITIONS = 1  # at most, in the last heat
FRESH = 1000  # fresh seeds are so far from those of the heats
# Seeds of the heats (they are spread evenly from the first to the last) and fresh seeds, from the smallest plan to the largest.
LEVELS = (
    (1, 2, 6), (1, 2, 7), (1, 2, 8), (1, 3, 8), (2, 4, 9), (2, 5, 10), (3, 6, 12), (3, 8, 15), (4, 10, 20), (6, 16, 30),
)  # fmt: skip


@dataclass(frozen=True)
class Budget:
    """An amount of rounds or of seconds. `stages`: rounds of every heat and of the fresh seeds, from the record of a race."""

    rounds: int | None = None
    seconds: float | None = None
    stages: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.rounds} rounds" if self.rounds is not None else clock(self.seconds or 0)


def read_budget(text: str) -> Budget:
    """`10m`, `90s`, `1.5h`, `2000r`, `252r+90r+480r`."""
    if re.fullmatch(r"\d+r(\+\d+r)+", text):
        stages = tuple(int(term[:-1]) for term in text.split("+"))
        return Budget(rounds=sum(stages), stages=stages)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([rsmh])", text.strip().replace(" ", ""))
    if not found or not float(found[1]):
        raise BadRequest(f"--budget must be minutes or rounds, as in 10m, 1.5h or 2000r, not {shown(text)}")
    amount, unit = float(found[1]), found[2]
    if unit != "r":
        return Budget(seconds=amount * SECONDS[unit])
    if amount != int(amount):
        raise BadRequest(f"--budget {text} is not a whole number of rounds; write {math.ceil(amount)}r")
    return Budget(rounds=int(amount))


@dataclass(frozen=True)
class Heat:
    """Every contender runs up to `rounds` on the first `seeds` seeds; `keep` methods go on. No seeds: the heat is left out."""

    rounds: int
    seeds: int
    keep: int


@dataclass(frozen=True)
class Plan:
    """The heats, then the challenger and plain averaging on `fresh` seeds."""

    heats: tuple[Heat, ...]
    fresh: int
    methods: int
    points: int  # of all methods: rates and values of a parameter
    plain: int  # points of plain averaging that stay to the end

    @property
    def rounds(self) -> int:
        return self.heats[-1].rounds

    def entered(self) -> list[int]:
        """How many contenders each heat has, at most. All points enter the first one, and one per method the second."""
        later = [min(self.methods - 1, heat.keep) + self.plain for heat in self.heats[:-1]]
        return [self.points, *later[:-1], later[-1] + COMPOSITIONS] if later else [self.points]

    def segments(self) -> int:
        """The number of times that a run is started or continued."""
        return sum(n * heat.seeds for n, heat in zip(self.entered(), self.heats)) + 2 * self.fresh

    def stages(self) -> tuple[int, ...]:
        """Rounds of every heat and of the fresh seeds, at most."""
        costs, before = list[int](), Heat(0, 0, 0)
        for number, heat in zip(self.entered(), self.heats):
            new = COMPOSITIONS if heat is self.heats[-1] and before.seeds else 0
            cost = number * heat.rounds * heat.seeds - (number - new) * before.rounds * before.seeds
            costs.append(cost if heat.seeds else 0)
            before = heat if heat.seeds else before
        return (*costs, 2 * self.fresh * self.rounds)

    def cost(self) -> int:
        """Rounds, at most."""
        return sum(self.stages())

    def spelled(self, offered: Sequence[Plan]) -> str:
        """The budget that gives this plan again: its rounds, or those of every stage if it is none of those offered."""
        return f"{self.cost()}r" if self in offered else "+".join(f"{rounds}r" for rounds in self.stages())

    def with_heat(self, number: int, seeds: int) -> Plan:
        """This plan with another number of seeds in a heat."""
        heats = [replace(heat, seeds=seeds) if n == number else heat for n, heat in enumerate(self.heats)]
        return replace(self, heats=tuple(heats))

    def least_seeds(self, number: int) -> int:
        """The fewest seeds that a heat can have: those of the heat before it, whose runs are continued."""
        return max([1, *(heat.seeds for heat in self.heats[:number])])


def staged(plan: Plan, stages: Sequence[int]) -> Plan:
    """The plan whose heats and fresh seeds cost at most so many rounds each; 0 leaves a heat out."""
    if len(stages) != len(plan.heats) + 1:
        raise BadRequest(
            f"--budget {'+'.join(f'{n}r' for n in stages)} has {len(stages)} terms, and this race has {len(plan.heats) + 1}: "
            f"{len(plan.heats)} heats and the fresh seeds; give one for each, or their sum"
        )
    for number, rounds in enumerate(stages[:-1]):
        seeds = plan.least_seeds(number)
        while plan.with_heat(number, seeds + 1).stages()[number] <= rounds:
            seeds += 1
        plan = plan.with_heat(number, seeds if plan.with_heat(number, seeds).stages()[number] <= rounds else 0)
    return replace(plan, fresh=stages[-1] // (2 * plan.rounds))


def plans(methods: int, points: int, rounds: int, plain: int) -> list[Plan]:
    """The plans for so many methods, from the cheapest to the dearest. They differ in the seeds alone."""
    keeps = [MOST_IN_LAST]
    while keeps[0] * HALVING < methods - 1:
        keeps.insert(0, keeps[0] * HALVING)
    keeps.append(methods + COMPOSITIONS)  # the last heat: nobody leaves it for budget
    shares = [number / (len(keeps) - 1) for number in range(len(keeps))]
    lengths = [max(1, math.ceil(rounds * FIRST ** (1 - share))) for share in shares]
    return [
        Plan(
            tuple(Heat(n, round(low + share * (high - low)), keep) for n, share, keep in zip(lengths, shares, keeps)),
            fresh, methods, points, plain,
        )
        for low, high, fresh in LEVELS
    ]  # fmt: skip


def best_fitting(asked: Sequence[Plan], fits: Callable[[Plan], bool]) -> Plan | None:
    """The dearest plan that fits."""
    return next((plan for plan in reversed(asked) if fits(plan)), None)
