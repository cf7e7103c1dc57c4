"""What a race may cost, and the plan that a budget pays for.

A plan is a list of heats with growing rounds and seeds. Runs are continued from heat to heat, never trained twice. A budget in
minutes chooses a plan once, from the time that a few rounds took. From then on the plan counts, in rounds, so that the answer
can be repeated on another machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    """An amount of rounds or of seconds."""

    rounds: int | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        return f"{self.rounds} rounds" if self.rounds is not None else clock(self.seconds or 0)


def read_budget(text: str) -> Budget:
    """`10m`, `90s`, `1.5h`, `2000r`."""
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
    """Every contender runs up to `rounds` on the first `seeds` seeds; `keep` methods go on."""

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

    def cost(self) -> int:
        """Rounds, at most."""
        total, before = 0, Heat(0, 0, 0)
        for number, heat in zip(self.entered(), self.heats):
            new = COMPOSITIONS if heat is self.heats[-1] and before.seeds else 0
            total += number * heat.rounds * heat.seeds - (number - new) * before.rounds * before.seeds
            before = heat
        return total + 2 * self.fresh * self.rounds


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
