"""Verdicts: intervals, equivalence, Holm's procedure and repeated looks by hand, and against simulated studies."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from undrift.papers import claims, scales
from undrift.papers import run as paper_run
from undrift.papers.claims import Claim, Part, Term
from undrift.papers.papers import Column, Preset, TableRow, Value
from undrift.study.conclusion import conclusion
from undrift.study.verdict import ALPHA, Looks, Question, holm, outcome, seeds_needed, shown, signed, verdicts

STUDIES, TOO_MANY = 500, 37  # of 500 at 5 %: 38 or more have a chance below 1 %


def one(differences, kind="above", within=1.0, looks=None):
    return verdicts([Question("x", differences, kind, within)], looks)[0]


# ---- by hand ---------------------------------------------------------------------------------------------------------


def test_the_interval_is_students():
    # 0.1 and 0.2: mean 0.15, s/√2 = 0.05, t(0.975, 1) = 12.7062.
    found = one([0.1, 0.2])
    assert (found.low, found.high) == pytest.approx((0.15 - 12.7062 * 0.05, 0.15 + 12.7062 * 0.05), rel=1e-4)
    assert found.outcome == "open"
    assert one([10.0, 11.0, 10.5]).outcome == "true"
    assert one([-10.0, -11.0, -10.5]).outcome == "false"
    assert one([-10.0, -11.0, -10.5], "below").outcome == "true"


def test_one_seed_never_gives_a_verdict_but_a_hint():
    for kind in ("above", "below", "near"):
        for number in (0.0, 4.1, -50.0):
            assert one([number], kind).outcome == "open"
    assert shown(one([4.1])) == "+4.1, one seed"
    assert shown(one([0.1, 0.2]), 2) == "+0.15 [−0.49, +0.79]"


def test_near_is_an_equivalence():
    assert [outcome("near", *pair, 1.0) for pair in ((-0.5, 0.9), (1.2, 3.0), (-3.0, -1.2), (0.5, 1.2), (-2.0, 2.0))] == [
        "true", "false", "false", "open", "open",
    ]  # fmt: skip
    assert one([0.1, -0.1, 0.05, -0.05], "near").outcome == "true"
    assert one([0.9, -0.9], "near").outcome == "open"  # the mean is 0, and two seeds do not show it
    assert one([5.0, 5.1, 4.9], "near").outcome == "false"


@pytest.mark.parametrize("kind", ["above", "below", "near"])
def test_the_p_value_is_the_level_at_which_the_interval_decides(kind):
    question = Question("x", [0.4, 0.9, 0.5, 0.3], kind, within=1.0)
    assert outcome(kind, *question.interval(question.p * 1.001), 1.0) != "open"
    assert outcome(kind, *question.interval(question.p * 0.999), 1.0) == "open"


def test_holms_levels_by_hand():
    # Three questions at 5 %: 0.01 ≤ 0.05/3; 0.03 > 0.05/2, so it and the next one keep the level 0.05/2.
    assert holm([0.03, 0.01, 0.04], [0.05] * 3) == pytest.approx([0.025, 0.05 / 3, 0.025])
    assert holm([0.001, 0.002, 0.003], [0.05] * 3) == pytest.approx([0.05 / 3, 0.025, 0.05])


def test_an_interval_and_its_verdict_agree_after_the_correction():
    draw = np.random.default_rng(3)
    for _ in range(50):
        found = verdicts([Question(str(i), draw.normal(draw.choice([0, 2]), 1, 4)) for i in range(5)])
        for verdict in found:
            assert (verdict.outcome == "true") == (verdict.low > 0)
            assert (verdict.outcome == "false") == (verdict.high < 0)
            assert verdict.alpha <= ALPHA


def test_the_looks_spend_five_percent_together_and_the_early_ones_little():
    looks = Looks(3, 10)
    spent = [looks.alpha(n) for n in range(3, 11)]
    assert sum(spent) == pytest.approx(ALPHA)
    assert spent[0] == pytest.approx(ALPHA * 0.09)
    assert spent[-1] == pytest.approx(ALPHA * 0.19)
    assert looks.alpha(2) == 0.0
    assert one([10.0, 11.0], looks=looks).outcome == "open"  # before the first look there is no verdict


def test_looking_often_widens_the_interval():
    differences = [0.4, 0.9, 0.5, 0.3, 0.6]
    once, often = one(differences), one(differences, looks=Looks(2, 10))
    assert often.low < once.low < once.high < often.high


def test_numbers_in_print():
    assert [signed(x) for x in (1.25, -0.34, 0.04, -0.04)] == ["+1.2", "−0.3", "0.0", "0.0"]


def test_the_seeds_that_would_decide():
    exact = Question("x", [1.0, 1.0, 1.0])
    assert seeds_needed(exact, ALPHA) == 2
    wide = Question("x", [1.0, -1.0, 1.5, -0.5])  # mean 0.25, s = 1.19: (1.96 + 0.84)² (1.19/0.25)² = 178
    assert seeds_needed(wide, ALPHA) == pytest.approx(178, abs=5)
    assert seeds_needed(Question("x", [1.0, -1.0]), ALPHA) is None
    assert seeds_needed(Question("x", [1.0]), ALPHA) is None


# ---- simulated studies -----------------------------------------------------------------------------------------------


def simulated(columns: int, claim: Claim) -> Preset:
    return Preset(
        name="a/b", title="t", source="s", about="", options={"data": "digits", "rounds": 10},
        rows=(TableRow("A", "fedavg"), TableRow("B", "bound")), columns=tuple(Column(f"c{i}") for i in range(columns)),
        values=(Value(),), published={}, claims=(claim,), quick={}, seeds=1,
    )  # fmt: skip


def rows_of(preset, draw, seeds, gap, looks):
    """Runs of two methods on shared seeds: a part common to both, own noise, and `gap` points between them."""
    rows = []
    for column, seed in itertools.product(preset.columns, range(seeds)):
        common = draw.normal(0.8, 0.03)
        for name, add in (("A", gap / 100), ("B", 0.0)):
            number = common + add + draw.normal(0, 0.01)
            rows.append({"row": name, "column": column.name, "seed": seed, "values": {"G": [number, 0.0]},
                         **({"until_clear": [looks.first, looks.most]} if looks else {})})  # fmt: skip
    return rows


ABOVE = Claim("above", (Part("above", (Term("A"), Term("B"))),))
SOME = Claim("in a quarter of the columns", ABOVE.parts, share=0.25)
NEAR = Claim("near", (Part("near", (Term("A"), Term("B")), within=1.0),))
GAPS = Claim(
    "the gap is larger", (Part("above", (Term("A", "c0", (), Term("B", "c0")), Term("A", "c1", (), Term("B", "c1")))),)
)
CASES = {  # claim, columns, true gap in points, the outcomes that are wrong
    "above": (ABOVE, 1, 0.0, {"true", "false"}),
    "near, no difference": (NEAR, 1, 0.0, {"false"}),
    "near, at its limit": (NEAR, 1, 1.0, {"true", "false"}),
    "every column": (ABOVE, 6, 0.0, {"true", "false"}),
    "some columns": (SOME, 6, 0.0, {"true"}),
    "gap against gap": (GAPS, 2, 0.0, {"true", "false"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("until_clear", [False, True], ids=["five seeds", "until clear"])
def test_wrong_verdicts_are_not_more_than_five_percent(case, until_clear, monkeypatch, tmp_path):
    claim, columns, gap, bad = CASES[case]
    preset, wrong = simulated(columns, claim), 0
    looks = Looks(2, 10) if until_clear else None
    for study in range(STUDIES):
        everything = rows_of(preset, np.random.default_rng([study, columns]), 10 if until_clear else 5, gap, looks)
        if until_clear:  # the loop of `paper run --until-clear`, with simulated runs

            def run(asked, *_, everything=everything):
                return [row for row in everything if row["seed"] < len(asked.seeds)], 0.0

            monkeypatch.setattr(paper_run, "run", run)
            asked = scales.Scaled(preset, "paper", {}, preset.rows, preset.columns, (), ())
            scaled = lambda n, asked=asked: replace(asked, seeds=tuple((s, s) for s in range(n)))  # noqa: E731
            _, everything, _ = paper_run.run_until_clear(scaled, looks, tmp_path)
        wrong += claims.outcome(preset, claim, everything).outcome in bad
    assert wrong <= TOO_MANY, wrong


@pytest.mark.slow
@pytest.mark.parametrize("until_clear", [False, True], ids=["five seeds", "until clear"])
def test_a_comparison_of_equals_puts_nobody_ahead(until_clear):
    wrong, looks = 0, Looks(2, 10) if until_clear else None
    for study in range(STUDIES):
        draw = np.random.default_rng(study)
        rows = [
            {"method": f"m{i}", "seed": seed, "accuracy": draw.normal(0.8, 0.01)}
            for seed in range(10)
            for i in range(4)
        ]
        for n in range(2, 11) if until_clear else (5,):
            found = conclusion([row for row in rows if row["seed"] < n], looks=looks)
            if found.clear:
                break
        wrong += any(verdict.outcome != "open" for verdict in found.pairs.values())
    assert wrong <= TOO_MANY, wrong


@pytest.mark.slow
def test_without_the_correction_looking_often_would_be_wrong_too_often():
    """The reason for the correction: the same looks at uncorrected 5 % intervals."""
    wrong = 0
    for study in range(STUDIES):
        differences = np.random.default_rng(study).normal(0, 1, 10)
        wrong += any(one(differences[:n]).outcome != "open" for n in range(2, 11))
    assert wrong > TOO_MANY


def test_a_large_difference_is_found_at_few_seeds():
    preset = simulated(1, ABOVE)
    rows = rows_of(preset, np.random.default_rng(0), 3, 20.0, None)
    assert claims.outcome(preset, ABOVE, rows).outcome == "true"
    assert math.isfinite(claims.outcome(preset, ABOVE, rows).verdicts[0].low)
