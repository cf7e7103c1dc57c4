"""Laws of APFL in its two variants: the personal model, and the α that mixes it."""

from __future__ import annotations

import math

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import personalize
from undrift.testing import quadratics, run_parts, small_network


def test_apfl_does_not_change_the_global_model(tiny):
    for variant in ("pfllib", "official"):
        run = run_parts(f"apfl(variant={variant})", tiny, rounds=3, model=lambda: small_network(5, 3, dropout=0.3))
        plain = run_parts("fedavg", tiny, rounds=3, model=lambda: small_network(5, 3, dropout=0.3))
        assert torch.equal(run.vector, plain.vector)


def test_alpha_falls_by_hand_where_both_models_are_the_same():
    # v = w throughout, so only 0.02 α is left: α ← 0.5 (1 − 0.1 · 0.02) per step; 3 steps, then official moves once.
    federation = quadratics([1.0], [1.0])
    own = run_parts("apfl", federation, rounds=1, epochs=3)
    assert own.state(0)["alpha"] == pytest.approx(0.5 * (1 - 0.002) ** 3, rel=1e-6)


def test_pfllib_alpha_and_model_by_hand():
    # One client, (x − 1)²/2, η = 0.1. Second round: w from 0.1 (after one step of the mean), v as left behind.
    run = run_parts("apfl(alpha0=0.5)", quadratics([1.0, 1.0], [1.0, -1.0]), rounds=2, epochs=1)
    # round 0: w₀ = v₀ = 0 → 0.1 for client 0 (gradient −1), α ← 0.5 − 0.1 (0 + 0.01) = 0.499; v stays 0.1
    # round 1: w = mean(0.1, −0.1) = 0 → 0.1 (gradient −1); v = 0.1 → 0.19 (gradient −0.9)
    slope = (0.19 - 0.1) * (0.499 * -0.9 + 0.501 * -1.0) + 0.02 * 0.499
    alpha = 0.499 - 0.1 * slope
    assert run.state(0)["alpha"] == pytest.approx(alpha, rel=1e-5)
    assert run.state(0)["v"].item() == pytest.approx(alpha * 0.19 + (1 - alpha) * 0.1, rel=1e-5)
    assert alpha > 0.499  # v is nearer to the client's own optimum: its share grows


def test_official_is_fedtorchs_step_by_hand():
    # The output is x − 1. FedTorch: w steps, then the batch goes through v and the *new* w, and the mixed loss
    # (α(v − 1) + (1 − α)(w − 1))²/2 has slopes α · mixed along v and (1 − α) · mixed along w.
    run = run_parts("apfl(variant=official, alpha0=0.6)", quadratics([1.0], [1.0]), rounds=1, epochs=2)
    w, v, alpha = 0.0, 0.0, 0.6
    w -= 0.1 * (w - 1)
    mixed = alpha * (v - 1) + (1 - alpha) * (w - 1)
    g_v, g_w = alpha * mixed, (1 - alpha) * mixed
    v -= 0.1 * g_v
    next_alpha = alpha - 0.1 * ((v - w) * (alpha * g_v + (1 - alpha) * g_w) + 0.02 * alpha)
    w -= 0.1 * (w - 1)  # second epoch: α has moved and stays
    v -= 0.1 * next_alpha * (next_alpha * (v - 1) + (1 - next_alpha) * (w - 1))
    assert run.state(0)["alpha"] == pytest.approx(next_alpha, rel=1e-5)
    assert run.state(0)["v"].item() == pytest.approx(v, rel=1e-5)


@pytest.mark.parametrize("variant", ["pfllib", "official"])
def test_alpha_grows_where_the_personal_model_is_the_better_one(variant):
    # Optima at ±1: the mean model is 0 for ever, the personal one goes to its own optimum.
    run = run_parts(f"apfl(variant={variant})", quadratics([1.0, 1.0], [1.0, -1.0]), rounds=15, epochs=4)
    alphas = [value for _, client, value in run.notes("alpha") if client == 0]
    assert alphas[-1] > 0.52
    assert min(alphas) == alphas[0]


@pytest.mark.parametrize(("variant", "end"), [("pfllib", 1.0), ("official", 0.0)])
def test_alpha_stays_between_zero_and_one_however_steep_the_slope(variant, end):
    # Optima at ±20. The official form's v moves α times slower than w at first, so α falls at once, and at 0 v is never
    # trained again; PFLlib's v trains on its own loss, and α rises.
    run = run_parts(f"apfl(variant={variant}, alpha0=0.1)", quadratics([1.0, 1.0], [20.0, -20.0]), rounds=10, epochs=4)
    alphas = [value for _, client, value in run.notes("alpha") if client == 0]
    assert all(0 <= alpha <= 1 for alpha in alphas)
    assert end in alphas


def test_alpha_is_fixed_if_it_is_not_adaptive(tiny):
    run = run_parts("apfl(variant=official, adaptive=false, alpha0=0.3)", tiny)
    assert [value for _, _, value in run.notes("alpha")] == pytest.approx([0.3] * 12)


def test_a_slope_that_is_not_finite_keeps_alpha(job, batch):
    class Broken:
        P = torch.tensor([math.inf])

        def learn(self, batch):
            return torch.zeros(1)

    scratch = {"v": Broken(), "alpha": torch.tensor(0.4), "moves": True}
    personalize.apfl().after_step(batch(torch.zeros(2, 1), gradient=torch.ones(1)), job(), scratch)
    assert scratch["alpha"].item() == pytest.approx(0.4)


def test_which_models_an_apfl_client_uses(job):
    own = {"v": torch.tensor([3.0]), "alpha": 0.25}
    trained = torch.tensor([1.0])
    assert personalize.apfl().personal_models(job(), own, trained) == [(1.0, own["v"])]
    assert personalize.apfl(variant="official").personal_models(job(), own, trained) == [
        (0.25, own["v"]),
        (0.75, trained),
    ]


def test_the_personal_model_is_trained_on_the_plain_loss(tiny):
    # Weights multiply the global model's loss only: the second model's first round is that of plain training.
    heavy, plain = (run_parts(m, tiny, rounds=1) for m in ("apfl(adaptive=false, alpha0=1)+fedlc", "local"))
    for client in range(4):
        assert torch.allclose(heavy.states(client)["personalize.apfl"]["v"], plain.state(client), atol=1e-6)


def test_bad_values_of_apfl_are_refused():
    for values in ({"variant": "mine"}, {"alpha0": 1.5}):
        with pytest.raises(BadRequest, match="apfl: "):
            personalize.apfl(**values)
