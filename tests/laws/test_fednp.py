"""Laws of FedNP."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import objectives
from undrift.methods.objectives.fednp import (
    EPS,
    LATENT,
    cavities,
    divided,
    divided_as_released,
    ep_step,
    prior,
    propagate,
)
from undrift.testing import run_parts


def gaussian(mean, variance):
    return torch.full((LATENT,), float(mean)), torch.full((LATENT,), float(variance))


def test_cavities_of_three_clients_by_hand():
    # variances 1, 1/2, 1/4 and means 1, 2, 3; precisions 1, 2, 4 (ε = 1e-5 aside)
    # of client 0: precision 6, mean (2·2 + 3·4)/6 = 8/3; of 1: 5, (1 + 12)/5; of 2: 3, (1 + 4)/3
    computed = cavities([gaussian(1, 1), gaussian(2, 0.5), gaussian(3, 0.25)])
    for (mean, variance), (m, v) in zip(computed, [(8 / 3, 1 / 6), (13 / 5, 1 / 5), (5 / 3, 1 / 3)]):
        assert mean[0].item() == pytest.approx(m, rel=1e-4)
        assert variance[0].item() == pytest.approx(v, rel=1e-4)


def test_without_other_clients_the_variance_is_five():
    ((mean, variance),) = cavities([gaussian(1, 1)])
    assert variance.unique().item() == 5
    assert mean.unique().item() == 0


def test_division_undoes_the_product():
    # N(1, 1)·N(2, 1/2) has precision 3 and mean (1 + 4)/3; dividing N(2, 1/2) out gives N(1, 1) back
    mean, variance = divided(gaussian(5 / 3, 1 / 3), gaussian(2, 0.5))
    assert mean[0].item() == pytest.approx(1, abs=1e-5)
    assert variance[0].item() == pytest.approx(1, abs=1e-5)


def test_the_released_division_clamps_whatever_it_is_given():
    draw = torch.Generator().manual_seed(0)
    for _ in range(50):
        whole, cavity = ((torch.rand(LATENT, generator=draw) * 4 + 0.1, torch.rand(LATENT, generator=draw) * 4 + 0.1)
                         for _ in range(2))  # fmt: skip
        mean, variance = divided_as_released(whole, cavity)
        assert (variance == torch.tensor(EPS)).all()
        narrower = whole[1] < cavity[1]  # where the factor exists at all
        assert set(mean[narrower].tolist()) <= {torch.tensor(EPS).item(), 5.0}


def test_the_ep_step_stays_in_its_box_even_without_features():
    for f in (0.0, 1e-6, 0.3, 50.0, -2.0):
        mean, variance = ep_step(gaussian(0.5, 0.3), torch.tensor(f))
        assert ((mean >= EPS - 1e-9) & (mean <= 5)).all()
        assert ((variance >= EPS - 1e-9) & (variance <= 5)).all()


def test_the_ep_step_by_hand():
    # f = 1, cavity (0, 1): a = 0, b = 1. With κ as printed: e1 = σ(0) = 0.5;
    # e2 = σ(1.17157·0.881374/√(1 + 0.392699·1.37258)) = σ(1.032594/1.240569) = σ(0.832355) = 0.696852
    # e3 = σ(3.87868·0.603456/√(1 + 0.392699·15.0442)) = σ(2.340613/2.628275) = σ(0.890551) = 0.709004
    # P1 = 0.5 − 0.696852 = −0.196852; s1 = P1/0.5 = −0.393704, below ε
    # P2 = 2·0.696852 − 2·0.709004 = −0.024304; s2 = (0.5 − 0.196852 + 0.024304)/0.5 = 0.654904
    # σ = s2 − s1² = 0.654904 − 0.155003 = 0.499901
    mean, variance = ep_step(gaussian(0, 1), torch.tensor(1.0))
    assert mean[0].item() == pytest.approx(EPS)
    assert variance[0].item() == pytest.approx(0.499901, abs=5e-5)


def test_the_priors_gradient_is_that_of_finite_differences(job, batch, planned):
    plan = planned("fednp")
    place = plan.layout.entry("2.weight").place
    draw = torch.Generator().manual_seed(0)
    npn = {name: torch.rand(shape, generator=draw, dtype=torch.float64) * 0.1 - 0.05
           for name, shape in (("A", (10, 10)), ("a", (10,)), ("B", (10, 24)), ("b", (24,)))}  # fmt: skip
    here = tuple(torch.rand(10, generator=draw, dtype=torch.float64) + 0.1 for _ in range(2))
    cavity = tuple(value.clone() for value in here)
    P = torch.randn(plan.layout.nP, generator=draw, dtype=torch.float64)
    G = torch.zeros_like(P)
    scratch = {"npn": npn, "here": here, "cavity": cavity}
    features = torch.rand(6, 8, generator=draw, dtype=torch.float64)
    part = objectives.fednp(lam=0.3)
    part.gradient(P, G, batch(torch.zeros(6, 3), features=features), job(plan=plan, lr=0.1), scratch)

    def term(W, **other):
        return 0.3 * prior(W, propagate({**npn, **other}, here)).item()

    W = P[place]
    for i in (0, 11, 23):
        e = torch.zeros_like(W)
        e[i] = 1e-6
        assert G[place][i].item() == pytest.approx((term(W + e) - term(W - e)) / 2e-6, rel=1e-5)
    assert G[: place.start].abs().sum() == 0
    assert G[place.stop :].abs().sum() == 0
    for name in npn:  # the NPN takes a plain step down the same term
        e = torch.zeros_like(npn[name])
        e.view(-1)[3] = 1e-7
        slope = (term(W, **{name: npn[name] + e}) - term(W, **{name: npn[name] - e})) / 2e-7
        assert ((npn[name] - scratch["npn"][name]).view(-1)[3] / 0.1).item() == pytest.approx(slope, rel=1e-4, abs=1e-6)
    assert torch.equal(scratch["here"][0], ep_step(cavity, features.mean())[0])


def test_lambda_zero_is_plain_training_bit_for_bit(tiny):
    assert torch.equal(run_parts("fednp(lam=0)", tiny).vector, run_parts("fedavg", tiny).vector)
    assert not torch.equal(run_parts("fednp", tiny).vector, run_parts("fedavg", tiny).vector)


@pytest.mark.parametrize("fix", ["false", "true"])
def test_cavities_live_on_the_shelf_and_npns_at_the_clients(tiny, fix):
    run = run_parts(f"fednp(fix={fix})", tiny, rounds=2)
    kind = "shelf/objective.fednp"
    rows = [run.store.states.get(kind, k, run.server_state.versions[kind, k]) for k in range(4)]
    assert all(set(row) == {"mean", "variance"} for row in rows)
    assert {name: tuple(value.shape) for name, value in run.state(0).items()} == {
        "A": (10, 10), "a": (10,), "B": (10, 24), "b": (24,)}  # fmt: skip
    if fix == "false":  # every factor has variance ε, so a cavity of three others has (ε + ε)/3
        assert rows[0]["variance"][0].item() == pytest.approx(2 * EPS / 3, rel=1e-3)


def test_bad_values_are_refused():
    with pytest.raises(BadRequest, match="fednp"):
        objectives.fednp(lam=-1)
