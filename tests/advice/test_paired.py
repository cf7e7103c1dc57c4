"""The signed-rank interval: by hand, against scipy's exact test, and under differences that Student's interval cannot bear."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import wilcoxon

from undrift.advice.paired import LEAST, paired, rank


def test_the_interval_by_hand():
    # Six differences have 21 means of two. P(W = 0) = 1/64 < 2.5 % and P(W ≤ 1) = 2/64 > 2.5 %: smallest and largest mean.
    found = paired([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert (found.estimate, found.low, found.high, found.outcome) == (3.5, 1.0, 6.0, "true")
    assert found.shown(1, 100) == "+350.0 [+100.0, +600.0]"


def test_fewer_than_six_seeds_decide_nothing():
    assert [rank(n, 0.05) for n in range(1, 9)] == [0, 0, 0, 0, 0, 1, 3, 4]
    found = paired([5.0] * (LEAST - 1))
    assert (found.outcome, math.isinf(found.low)) == ("open", True)
    assert found.shown(0, 1) == "+5, too few seeds for an interval"


@pytest.mark.parametrize("n", [6, 8, 11])
def test_it_decides_where_the_exact_test_does(n):
    draw = np.random.default_rng(n)
    for _ in range(50):
        d = draw.standard_t(2, n) + draw.choice([0.0, 1.0, 2.0])
        assert (paired(d).outcome != "open") == (wilcoxon(d, method="exact").pvalue <= 0.05)


def test_one_collapse_does_not_hide_that_every_seed_is_better():
    found = paired([0.097, 0.244, 0.008, 0.042, 0.011, 0.02])
    assert found.outcome == "true"
    assert 0 < found.low < found.estimate < 0.1


def test_equal_methods_are_open_and_lower_is_better_where_the_headline_says_so():
    assert paired([0.0] * 8).outcome == "open"
    assert [paired([-1.0, -2, -3, -4, -5, -6], lower).outcome for lower in (True, False)] == ["true", "false"]
