"""Laws of FedNolowe and of uniform weights."""

from __future__ import annotations

import math

import pytest
import torch

from undrift.contract.context import normalised
from undrift.core.errors import BadRequest
from undrift.methods import weighting
from undrift.testing import run_parts

VARIANTS = [
    (n, i) for n in ("l1", "minmax", "centre") for i in ("subtract", "divide", "exp", "log", "rank")
    if not (n == "centre" and i in ("divide", "log"))
]  # fmt: skip


@pytest.fixture
def shares(server, replies):
    def make(losses, n=None, last=None, **options):
        facts = {"loss": losses, "last": last or losses, "n": n or [1] * len(losses)}
        answers = replies(len(losses), **facts)
        raw = weighting.fednolowe(**options).weights(server(), answers)
        return normalised(raw.tolist(), answers.n)[0]

    return make


def test_equals_one_minus_the_share_over_m_minus_one(shares):
    losses = [1.0, 2.0, 3.0, 4.0]  # shares 0.1, 0.2, 0.3, 0.4
    assert shares(losses) == pytest.approx([0.9 / 3, 0.8 / 3, 0.7 / 3, 0.6 / 3])
    assert shares(losses, n=[100, 1, 1, 1]) == pytest.approx(shares(losses))  # sizes play no role


def test_with_two_clients_each_gets_the_others_share(shares):
    assert shares([3.0, 1.0]) == pytest.approx([0.25, 0.75])


def test_the_tilt_is_minus_the_relative_deviation_over_m_minus_one(shares):
    losses = [0.5, 1.0, 1.5, 3.0]
    mean = sum(losses) / 4
    expected = [(1 - (loss - mean) / mean / 3) / 4 for loss in losses]
    assert shares(losses) == pytest.approx(expected)


def test_subtraction_is_bounded_and_division_is_not(shares):
    for low in (1e-1, 1e-3, 1e-6, 0.0):
        assert shares([low, 1.0, 1.0, 1.0, 1.0])[0] <= 1 / 4 + 1e-12
    assert shares([1e-6, 1.0, 1.0, 1.0, 1.0], invert="divide")[0] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("m", "R"), [(3, 2), (5, 10), (20, 100)])
def test_division_damps_an_outlier_more_than_subtraction(shares, m, R):
    # The paper's appendix says the reverse; at m = 5, R = 10 it is 0.071 against 0.024.
    losses = [float(R)] + [1.0] * (m - 1)
    subtracted, divided = (shares(losses, invert=how)[0] for how in ("subtract", "divide"))
    assert subtracted == pytest.approx(1 / (R + m - 1))
    assert divided == pytest.approx(1 / (1 + R * (m - 1)))
    assert divided < subtracted


@pytest.mark.parametrize(("normalise", "invert"), VARIANTS)
def test_every_variant_is_a_weight_rule(shares, normalise, invert):
    options = {"normalise": normalise, "invert": invert}
    losses = [0.7, 0.1, 2.5, 0.1, 0.0]
    p = shares(losses, **options)
    assert min(p) >= 0
    assert sum(p) == pytest.approx(1)
    assert p[1] == pytest.approx(p[3])  # equal losses, equal weights
    assert shares(losses[::-1], **options)[::-1] == pytest.approx(p)
    assert p[4] >= p[1] >= p[0] >= p[2]  # a lower loss never counts less
    assert shares([2.0, 2.0, 2.0], **options) == pytest.approx([1 / 3] * 3)
    assert shares([0.0, 0.0], n=[1, 9], **options) == pytest.approx([0.5, 0.5])


def test_variants_by_hand(shares):
    losses = [1.0, 2.0, 5.0]  # l1: 1/8, 2/8, 5/8; minmax: 0, 1/4, 1; centre: mean 8/3, over 7/3: −5/7, −2/7, 1
    assert shares(losses, normalise="minmax") == pytest.approx([1 / 1.75, 0.75 / 1.75, 0])
    assert shares(losses, normalise="centre") == pytest.approx([12 / 21, 9 / 21, 0])
    exp = [math.exp(-share) for share in (1 / 8, 2 / 8, 5 / 8)]
    assert shares(losses, invert="exp") == pytest.approx([e / sum(exp) for e in exp])
    log = [math.log(8), math.log(4), math.log(8 / 5)]
    assert shares(losses, invert="log") == pytest.approx([x / sum(log) for x in log])
    assert shares(losses, invert="rank") == pytest.approx([3 / 6, 2 / 6, 1 / 6])
    assert shares([1.0, 1.0, 5.0], invert="rank") == pytest.approx([2.5 / 6, 2.5 / 6, 1 / 6])


def test_reversed_is_the_opposite_tilt_of_the_same_size(shares):
    losses = [1.0, 2.0, 3.0, 4.0]
    for plain, turned in zip(shares(losses), shares(losses, reverse=True)):
        assert turned - 0.25 == pytest.approx(0.25 - plain)


def test_the_last_epochs_loss_can_be_taken_instead(shares):
    assert shares([1.0, 1.0], last=[3.0, 1.0], loss="last") == pytest.approx([0.25, 0.75])


def test_negative_losses_are_shifted(shares):
    assert shares([-1.0, 0.0, 2.0]) == pytest.approx(shares([0.0, 1.0, 3.0]))


def test_equal_losses_average_uniformly(tiny):
    # Every client holds the same data here, so every loss is the same; the draw of batches must not matter: one batch.
    from undrift.federation.federation import Federation

    data = [(tiny.x[:20], tiny.y[:20], tiny.x[:4], tiny.y[:4])] * 3
    same = Federation.from_clients(data, name="same", labels=["0", "1", "2"])
    settings = {"batch": 100, "epochs": 1, "model": tiny.model}
    tilted, uniform = (run_parts(m, same, **settings) for m in ("fednolowe", "fedavg-uniform"))
    assert torch.allclose(tilted.vector, uniform.vector, rtol=0, atol=1e-6)


def test_a_cohort_of_one_gets_weight_one(tiny):
    run = run_parts("fednolowe", tiny, rounds=2, cohort=1)
    assert [value for _, _, value in run.notes("weight")] == [1.0, 1.0]


def test_losses_are_noted(tiny):
    run = run_parts("fednolowe", tiny, rounds=1)
    losses = [value for _, _, value in run.notes("loss")]
    weights = [value for _, _, value in run.notes("weight")]
    assert weights == pytest.approx([(1 - loss / sum(losses)) / 3 for loss in losses])


@pytest.mark.parametrize(
    "values", [{"loss": "best"}, {"normalise": "l2"}, {"invert": "x"}, {"normalise": "centre", "invert": "log"}]
)
def test_bad_values_are_refused(values):
    with pytest.raises(BadRequest, match="fednolowe: "):
        weighting.fednolowe(**values)


def test_uniform_ignores_sizes(tiny):
    run = run_parts("fedavg-uniform", tiny, rounds=1)
    assert [value for _, _, value in run.notes("weight")] == [0.25] * 4
