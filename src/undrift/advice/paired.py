"""The difference of two methods over paired seeds, without an assumption about its distribution.

Where two methods are alike, it does not matter which is called the first: their difference at a seed is as often +d as −d. The
signed-rank test (Wilcoxon, *Individual comparisons by ranking methods*) uses nothing else and is exact for any number of seeds. Its
interval goes from the k-th smallest to the k-th largest of the means of two differences (Hodges and Lehmann, *Estimates of
location based on rank tests*), and the estimate is their median. Student's interval is not used here, because plain averaging
collapses at some seeds: one difference of twenty points among five of two makes it too wide to say anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from undrift.study.verdict import ALPHA, signed

LEAST = 6  # seeds: fewer cannot decide at 95 %, whatever they show


@dataclass(frozen=True)
class Paired:
    """A difference: one value per seed, the estimate, and its interval."""

    values: tuple[float, ...]
    estimate: float
    low: float
    high: float
    lower: bool = False  # whether lower values of the headline are better

    @property
    def seeds(self) -> int:
        return len(self.values)

    @property
    def outcome(self) -> str:
        """ "true" if the first method is better, "false" if the second is, else "open"."""
        above, below = self.low > 0, self.high < 0
        return "open" if not above and not below else "true" if above != self.lower else "false"

    def shown(self, digits: int, scale: float) -> str:
        """`+2.61 [−8.20, +13.40]`."""
        low, mean, high = (signed(scale * number, digits) for number in (self.low, self.estimate, self.high))
        return f"{mean} [{low}, {high}]" if math.isfinite(self.low) else f"{mean}, too few seeds for an interval"


def paired(values: Sequence[float], lower: bool = False, alpha: float = ALPHA) -> Paired:
    """The difference with its interval at the level 1 − α; infinite where no number of ranks allows one."""
    d = np.asarray(values, dtype=np.float64)
    walsh = np.sort(np.add.outer(d, d)[np.triu_indices(len(d))] / 2)
    k = rank(len(d), alpha)
    low, high = (float(walsh[k - 1]), float(walsh[-k])) if k else (-math.inf, math.inf)
    return Paired(tuple(map(float, d)), float(np.median(walsh)), low, high, lower)


def rank(n: int, alpha: float) -> int:
    """The largest k with P(W < k) ≤ α/2, where W is the sum of the positive ranks of n differences; 0 if there is none."""
    counts = np.ones(1)
    for number in range(1, n + 1):
        counts = np.convolve(counts, np.eye(number + 1)[0] + np.eye(number + 1)[number])
    return int((np.cumsum(counts) / 2**n <= alpha / 2).sum())
