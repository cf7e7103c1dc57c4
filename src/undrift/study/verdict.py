"""Verdicts by statistics: what paired differences over seeds allow to say, and what they leave open.

A difference is measured once per seed. Its interval is Student's. Three things are corrected for:

- **Several comparisons at once** (the columns of a claim, the pairs of a comparison): Holm's procedure. The interval that is
  shown has the level at which Holm's procedure tested it, so that interval and verdict always agree.
- **Repeated looks.** Seeds that are added until a result is clear find a difference by chance sooner or later. The 5 % are
  therefore spent over the looks: after n of at most N seeds α·(n/N)² are spent (Kim and DeMets, *Design and analysis of group
  sequential tests based on the type I error spending rate function*), and a look gets what is added since the one before.
  Early looks get little, because few seeds decide little. The shares add up to 5 %, so the correction holds whatever the
  looks have in common. Exact boundaries would gain a little power and need a known variance, which few seeds do not have.
- **One seed** has no interval and never gives a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ALPHA = 0.05
POWER = 0.8
MOST_SEEDS = 1000
KINDS = ("above", "below", "near")


@dataclass(frozen=True)
class Looks:
    """When a study looks at its results: at `first` seeds, then after every further one, at most at `most`."""

    first: int
    most: int

    def alpha(self, seeds: int) -> float:
        """The chance of a wrong verdict that the look at this many seeds may have. Before the first look there is none."""
        n = min(seeds, self.most)
        if n < self.first:
            return 0.0
        before = (n - 1) / self.most if n > self.first else 0.0
        return ALPHA * ((n / self.most) ** 2 - before**2)


@dataclass(frozen=True)
class Question:
    """A paired difference, one number per seed, and what is asked about it: above zero, below zero, or near zero."""

    label: str
    differences: Sequence[float]
    kind: str = "above"
    within: float = 1.0  # what counts as equal, for `near`

    @property
    def seeds(self) -> int:
        return len(self.differences)

    @property
    def mean(self) -> float:
        return float(np.mean(self.differences))

    @property
    def standard_error(self) -> float:
        return float(np.std(self.differences, ddof=1) / math.sqrt(self.seeds)) if self.seeds > 1 else math.inf

    @property
    def p(self) -> float:
        """The smallest level at which the interval gives a verdict; 1 for one seed."""
        if self.seeds < 2:
            return 1.0
        from scipy.special import stdtr  # scipy.stats takes a second and 50 MB to import

        distance = abs(abs(self.mean) - self.within) if self.kind == "near" else abs(self.mean)
        if not distance:
            return 1.0
        error = self.standard_error
        return 2 * float(stdtr(self.seeds - 1, -distance / error)) if error > 0 else 0.0

    def interval(self, alpha: float) -> tuple[float, float]:
        """Student's interval at the level 1 − α; infinite for one seed."""
        if self.seeds < 2 or alpha <= 0:
            return -math.inf, math.inf
        from scipy.special import stdtrit

        half = float(stdtrit(self.seeds - 1, 1 - alpha / 2)) * self.standard_error
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class Verdict:
    """The answer to a question: true, false or open, and the interval behind it."""

    question: Question
    outcome: str
    low: float
    high: float
    alpha: float  # the level of the interval is 1 − α

    @property
    def mean(self) -> float:
        return self.question.mean

    @property
    def seeds(self) -> int:
        return self.question.seeds


def outcome(kind: str, low: float, high: float, within: float) -> str:
    """What an interval says: true, false or open."""
    if kind == "near":
        inside, outside = -within <= low and high <= within, low > within or high < -within
    else:
        inside, outside = (low > 0, high < 0) if kind == "above" else (high < 0, low > 0)
    return "true" if inside else "false" if outside else "open"


def holm(levels: Sequence[float], alphas: Sequence[float]) -> list[float]:
    """The level at which Holm's procedure tests each question. `levels`: their p values; `alphas`: what each may spend.

    The clearest question is tested at a share 1/m, the next at 1/(m − 1), …; the first that fails ends it, and the rest keeps
    its share."""
    order = sorted(
        range(len(levels)), key=lambda i: levels[i] / alphas[i] if alphas[i] else math.inf
    )  # may spend nothing: last
    tested, failed_at = [0.0] * len(levels), None
    for place, i in enumerate(order):
        divisor = len(order) - (place if failed_at is None else failed_at)
        tested[i] = alphas[i] / divisor
        if failed_at is None and not levels[i] <= tested[i]:
            failed_at = place
    return tested


def verdicts(questions: Sequence[Question], looks: Looks | None = None) -> list[Verdict]:
    """Answers to questions that are asked together. All of them are right with a chance of at least 95 %, over all looks."""
    asked = [q for q in questions if q.seeds]
    alphas = [looks.alpha(q.seeds) if looks else ALPHA for q in asked]
    found = []
    for question, alpha in zip(asked, holm([q.p for q in asked], alphas)):
        low, high = question.interval(alpha)
        found.append(Verdict(question, outcome(question.kind, low, high, question.within), low, high, alpha))
    return found


def seeds_needed(question: Question, alpha: float) -> int | None:
    """How many seeds would decide `above` or `below` with a chance of 80 %, if mean and variance stay as they were seen. None
    where no number up to a thousand does, or nothing is known about the variance."""
    from scipy.special import stdtrit

    if question.seeds < 2 or not question.mean or alpha <= 0:
        return None
    n = np.arange(2, MOST_SEEDS + 1)
    effect = abs(question.mean) / max(float(np.std(question.differences, ddof=1)), 1e-12)
    enough = np.flatnonzero(effect * np.sqrt(n) >= stdtrit(n - 1, 1 - alpha / 2) + stdtrit(n - 1, POWER))
    return int(n[enough[0]]) if len(enough) else None


def shown(verdict: Verdict, digits: int = 1, scale: float = 1.0) -> str:
    """`+2.6 [−8.2, +13.4]`; `+4.1, one seed` where there is no interval."""
    mean = signed(scale * verdict.mean, digits)
    if verdict.seeds == 1:
        return f"{mean}, one seed"
    if not math.isfinite(verdict.low):
        return f"{mean}, {counted(verdict.seeds, 'seed')}, too few for an interval"
    return f"{mean} [{signed(scale * verdict.low, digits)}, {signed(scale * verdict.high, digits)}]"


def signed(number: float, digits: int = 1) -> str:
    """`+1.2`, `−0.3`, `0.0`: a minus sign as in print, and no sign for what rounds to zero."""
    rounded = round(number, digits)
    if not rounded:
        return f"{0:.{digits}f}"
    return f"{'+' if rounded > 0 else '−'}{abs(rounded):.{digits}f}"


WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def worded(number: int) -> str:
    """`three`, and figures from eleven on."""
    return WORDS[number] if number < len(WORDS) else str(number)


def counted(number: int, what: str) -> str:
    """`one seed`, `three seeds`, `12 seeds`."""
    return f"{worded(number)} {what}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}" if names else ""
