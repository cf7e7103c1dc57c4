"""Scores against numbers worked out by hand. Logits (ln 1, ln 2, ln 5) have probabilities 1/8, 2/8, 5/8."""

from __future__ import annotations

import math

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import scores

Z = torch.tensor([[1.0, 2.0, 5.0]]).log()


def test_msp_is_the_largest_probability():
    assert scores.msp(Z).item() == pytest.approx(5 / 8)


def test_maxlogit_is_the_largest_logit():
    assert scores.maxlogit(Z).item() == pytest.approx(math.log(5))


def test_energy_is_the_log_of_the_sum():
    assert scores.energy(Z).item() == pytest.approx(math.log(8))
    # at T = 2: 2 ln(√1 + √2 + √5)
    assert scores.energy(Z, temperature=2.0).item() == pytest.approx(2 * math.log(1 + math.sqrt(2) + math.sqrt(5)))


def test_gen_by_hand():
    terms = [(p * (1 - p)) ** 0.1 for p in (1 / 8, 2 / 8, 5 / 8)]
    assert scores.gen(Z).item() == pytest.approx(-sum(terms))
    assert scores.gen(Z, largest=2).item() == pytest.approx(-sum(terms[1:]))


def test_gen_of_a_confident_sample_is_that_of_exact_arithmetic():
    # p = 1/(1 + e^−25) rounds to 1 in float32; (p (1 − p))^0.1 is e^−2.5 for both classes. At 400 even e^−400 is 0.
    for gap in (25.0, 80.0, 400.0):
        z = torch.tensor([[gap, 0.0]])
        assert scores.gen(z).item() == pytest.approx(-2 * math.exp(-gap / 10), rel=1e-5)
    many = torch.tensor([[30.0, 3.0, 1.0, 0.0]])
    assert torch.allclose(scores.gen(many).double(), scores.gen(many.double()), rtol=1e-5)
    assert scores.gen(torch.tensor([[1e4, -1e4]])).item() == 0
    assert scores.gen(torch.zeros(1, 1)).item() == 0  # one class: p = 1


def test_gen_never_falls_below_its_fixed_bound():
    # The bound's terms are at p = 1/2 each, which no softmax has for more than two classes.
    assert scores.gen_floor(10) == pytest.approx(-8.706, abs=1e-3)
    assert scores.gen_floor(100) == scores.gen_floor(10)  # M = 10
    assert scores.gen_floor(2) == pytest.approx(scores.gen(torch.zeros(1, 2)).item())
    draw = torch.Generator().manual_seed(0)
    for classes in (2, 3, 10, 100):
        z = torch.randn(500, classes, generator=draw) * torch.logspace(-3, 2, 500)[:, None]
        assert (scores.gen(z) >= scores.gen_floor(classes) - 1e-5).all()
        assert (scores.gen(z) <= 0).all()


F = torch.tensor([[4.0, 1.0, 3.0, 2.0]])  # at percentile 50 the entries 4 and 3 are kept; s₁ = 10, s₂ = 7


def identity(features: torch.Tensor) -> torch.Tensor:
    return features


@pytest.mark.parametrize(
    ("shape", "shaped"),
    [
        (scores.ash_p, [4.0, 0.0, 3.0, 0.0]),
        (scores.ash_b, [5.0, 0.0, 5.0, 0.0]),  # s₁/k = 10/2
        (scores.ash_s, [4 * math.exp(10 / 7), 0.0, 3 * math.exp(10 / 7), 0.0]),
    ],
)
def test_ash_by_hand(shape, shaped):
    assert shape(F, F, identity, percentile=50.0).item() == pytest.approx(torch.tensor(shaped).logsumexp(0).item())


def test_ash_reads_the_feature_and_does_not_change_it():
    for shape in (scores.ash_p, scores.ash_b, scores.ash_s):
        feature = F.clone()
        assert shape(Z, feature, identity).isfinite().all()
        assert torch.equal(feature, F)


def test_ash_s_survives_an_all_zero_feature_and_bounds_its_factor():
    zero = torch.zeros(2, 40)
    head = torch.nn.Linear(40, 3)
    assert torch.allclose(scores.ash_s(zero, zero, head), head.bias.logsumexp(0).expand(2))
    # One entry of 41 kept: s₁/s₂ = 41 without a bound, 10 with it.
    flat = torch.ones(1, 41)
    assert scores.ash_s(flat, flat, identity, percentile=98.0).item() == pytest.approx(math.exp(10), rel=1e-6)


@pytest.mark.parametrize("size", [1, 2, 10])
def test_ash_keeps_at_least_one_entry_of_a_small_feature(size):
    # round(0.95 · 10) = 10 would prune everything.
    feature = torch.arange(1.0, size + 1)[None]
    kept = torch.zeros(1, size)
    kept[0, -1] = size
    assert scores.ash_p(feature, feature, identity).item() == pytest.approx(kept.logsumexp(1).item())


def test_ash_s_without_its_guards_is_the_formula_and_the_guards_are_counted():
    """98 % of a flat feature pruned: s₁/s₂ = 50, so the guard acts; a feature with one large entry has s₁/s₂ ≈ 1."""
    flat, sharp = torch.ones(1, 100, dtype=torch.float64), torch.zeros(1, 100, dtype=torch.float64)
    sharp[0, 0] = 1.0
    raw = scores.ash_s_raw(flat, flat, identity, percentile=98.0).item()
    assert raw == pytest.approx(math.exp(50) + math.log(2), rel=1e-6)
    assert scores.ash_s_raw(sharp, sharp, identity) == scores.ash_s(sharp, sharp, identity)
    assert (scores.guarded(flat, 98.0), scores.guarded(sharp, 98.0), scores.guarded(0 * sharp)) == (1, 0, 1)


def test_larger_means_more_in_distribution_for_every_score():
    sure, unsure = torch.tensor([[9.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.9, 0.8]])
    for name, score in scores.SCORES.items():
        assert score(sure, sure, identity) > score(unsure, unsure, identity), name


def test_only_ash_needs_features_and_the_error_for_an_unknown_name_suggests_the_nearest():
    assert [name for name in scores.SCORES if "features" in scores.needs(name)] == [
        "ash-p",
        "ash-b",
        "ash-s",
        "ash-s-raw",
    ]
    with pytest.raises(BadRequest, match="did you mean energy"):
        scores.named("enrgy")
