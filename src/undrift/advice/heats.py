"""A race: heats with growing rounds and seeds, on validation data, with the same deals, cohorts and starts for everybody.

Who leaves a heat, and why, is decided here from numbers alone:

- **behind**: the paired interval against the leader says so. The leader of a heat is the best of K contenders by chance too,
  and the heats are looked at one after the other. Both are paid for. A heat may spend the share of 5 % that `verdict.Looks`
  gives a look, and each of its K − 1 pairs an equal part of that, whoever turns out to lead. So the chance that the best
  contender is ever dropped as behind is at most 5 %.
- **budget**: the others are kept by their mean as long as the plan has room. A contender dropped here was not distinguished.
- **failed**: a run of it failed, or its headline is no number.

Plain averaging stays to the end at its two best rates, because a baseline at a poor rate would make every method look good.

The race only chooses a challenger. What it is worth is measured once, on fresh seeds and on test data (`answer.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from undrift.advice.budget import Heat, Plan
from undrift.advice.pace import Pace
from undrift.study.verdict import Looks, Question, outcome

PLAIN = "fedavg"
PLAIN_RATES = 2  # of plain averaging that stay to the end


@dataclass(frozen=True)
class Contender:
    """A method at a rate, with its main parameter in its text."""

    method: str
    lr: float
    name: str  # of the shortlist, without the parameter: its points compete with each other in the first heat
    axis: str = ""
    reason: str = ""
    evidence: str = ""

    @property
    def label(self) -> str:
        return f"{self.method} lr={self.lr:g}"

    @property
    def plain(self) -> bool:
        return self.name == PLAIN


@dataclass(frozen=True)
class Standing:
    """A contender after a heat. `low` and `high`: the leader minus it, the larger the better for the leader."""

    contender: Contender
    mean: float | None  # of the headline on validation data, as it is recorded
    outcome: str  # leader, kept, behind, budget, failed
    gap: float | None = None
    low: float | None = None
    high: float | None = None

    def as_json(self) -> dict[str, Any]:
        finite = {key: value if math.isfinite(value) else None for key, value in self.numbers().items()}
        about = {key: value for key, value in asdict(self.contender).items() if key != "name"}
        return {**about, "outcome": self.outcome, **finite}

    def numbers(self) -> dict[str, float]:
        return {
            key: math.nan if (value := getattr(self, key)) is None else value for key in ("mean", "gap", "low", "high")
        }


@dataclass(frozen=True)
class HeatResult:
    """A heat and its standings, from the best to the worst."""

    heat: Heat
    standings: tuple[Standing, ...]
    alpha: float  # of every interval

    @property
    def going_on(self) -> list[Contender]:
        return [standing.contender for standing in self.standings if standing.outcome in ("leader", "kept")]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self.heat), "alpha": self.alpha, "standings": [one.as_json() for one in self.standings]}


class Runs(Protocol):
    """Where the numbers of a race come from."""

    def scores(self, asked: Sequence[Contender], seeds: int, rounds: int) -> Mapping[Contender, Sequence[float]]:
        """The headline of every contender on validation data after so many rounds, one number per seed, signed so that larger
        is better; −∞ for a run that failed."""
        ...


@dataclass
class Race:
    """The heats so far. `run` adds the missing ones."""

    plan: Plan
    contenders: Sequence[Contender]
    compose: Callable[[Sequence[Contender]], Sequence[Contender]] = field(default=lambda survivors: ())
    heats: list[HeatResult] = field(default_factory=list)

    def run(
        self,
        runs: Runs,
        on_heat: Callable[[HeatResult], None] = lambda heat: None,
        sign: int = 1,
        pace: Pace | None = None,
    ) -> None:
        """Run the heats. `sign` turns a score into a recorded headline again. `pace` cuts the plan to a time."""
        entered = list(self.contenders)
        for number in range(len(self.plan.heats)):
            self.plan = pace.cut(self.plan, number) if pace else self.plan
            if not self.plan.heats[number].seeds:
                continue
            if number and number == len(self.plan.heats) - 1:
                entered += [one for one in self.compose(entered) if one not in entered]
            if pace:
                self.plan = self.begun(number, entered, runs, pace)
            heat = self.plan.heats[number]
            scores = runs.scores(entered, heat.seeds, heat.rounds)
            spend = Looks(1, len(self.plan.heats)).alpha(number + 1)
            self.heats.append(judged(heat, entered, scores, spend, sign))
            on_heat(self.heats[-1])
            entered = self.heats[-1].going_on

    def begun(self, number: int, entered: Sequence[Contender], runs: Runs, pace: Pace) -> Plan:
        """The plan after the fewest seeds of a heat have run, whose time says how many more there are."""
        least = self.plan.least_seeds(number)
        runs.scores(entered, least, self.plan.heats[number].rounds)
        return pace.cut(self.plan, number, least, self.plan.with_heat(number, least).stages()[number])

    @property
    def challenger(self) -> Contender | None:
        """The best contender of the last heat that is not plain averaging; None if nobody else is left."""
        return next((c for c in self.ranked() if not c.plain), None)

    @property
    def plain(self) -> Contender:
        """Plain averaging at its own best rate."""
        return next(c for c in self.ranked() if c.plain)

    def ranked(self) -> list[Contender]:
        """The contenders that did not fail, from the last heat to the first, the best of each first."""
        found = [s.contender for heat in reversed(self.heats) for s in heat.standings if s.outcome != "failed"]
        return list(dict.fromkeys(found))


def judged(
    heat: Heat,
    entered: Sequence[Contender],
    scores: Mapping[Contender, Sequence[float]],
    spend: float,
    sign: int = 1,
) -> HeatResult:
    """The standings of a heat that may be wrong with the chance `spend`. Of the points of one method only the best goes on."""
    means = {one: float(np.mean(scores[one])) for one in entered}
    whole = sorted((one for one in entered if np.isfinite(scores[one]).all()), key=lambda one: -means[one])
    alpha = spend / max(1, len(entered) - 1)
    found, names = list[Standing](), set[str]()
    for place, one in enumerate(whole):
        question = Question(one.label, [a - b for a, b in zip(scores[whole[0]], scores[one])])
        low, high = question.interval(alpha)
        behind = place > 0 and outcome("above", low, high, 0.0) == "true"
        if one.plain:
            keeps = sum(other.plain for other in whole[:place]) < PLAIN_RATES
        else:
            keeps = not behind and one.name not in names and len(names - {PLAIN}) < heat.keep
        state = "leader" if place == 0 else "kept" if keeps else "behind" if behind else "budget"
        if state in ("leader", "kept"):
            names.add(one.name)
        found.append(Standing(one, sign * means[one], state, question.mean, low, high))
    failed = [Standing(one, None, "failed") for one in entered if one not in whole]
    return HeatResult(heat, tuple([*found, *failed]), alpha)
