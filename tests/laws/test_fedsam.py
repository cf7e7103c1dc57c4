"""Laws of FedSAM."""

from __future__ import annotations

import math

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import objectives
from undrift.testing import quadratics, run_parts, small_network


def test_without_a_radius_it_is_fedavg_bit_for_bit(tiny):
    for other in ("fedavg", "scaffold", "fedlc", "fedprox(mu=0.5)"):
        alone, beside = run_parts(other, tiny), run_parts(f"{other}+fedsam(rho=0)", tiny)
        assert torch.equal(alone.vector, beside.vector), other


def test_without_a_radius_it_is_fedavg_with_batchnorm_and_dropout(tiny):
    model = {"model": lambda: small_network(5, 3, norm=True, dropout=0.5)}
    assert torch.equal(run_parts("fedavg", tiny, **model).vector, run_parts("fedsam(rho=0)", tiny, **model).vector)


def test_a_step_uses_the_gradient_at_the_worst_point_nearby():
    # F = c (x − o)²/2 at x = 0: g = −c o, so ε = −ρ for o > 0, and g(x + ε) = c (−ρ − o)
    federation = quadratics(curvature=[2.0], optimum=[3.0])
    run = run_parts("fedsam(rho=0.25)", federation, rounds=1, epochs=1, lr=0.1)
    assert run.vector.item() == pytest.approx(0.1 * 2.0 * (3.0 + 0.25), abs=1e-6)


def test_adaptive_scales_with_the_parameter():
    # T = |x| + η = 1.5, ε = ρ T² g/|T g| = −ρ T
    federation = quadratics(curvature=[2.0], optimum=[3.0], start=1.0)
    run = run_parts("fedsam(rho=0.2, adaptive=true, eta=0.5)", federation, rounds=1, epochs=1, lr=0.1)
    assert run.vector.item() == pytest.approx(1 + 0.1 * 2.0 * (2.0 + 0.2 * 1.5), abs=1e-6)


def test_beside_fedprox_both_points_are_pulled():
    # two steps of F = c (x − o)²/2 + μ x²/2 from 0 with SAM, by hand
    c, o, mu, rho, lr, x = 1.0, 2.0, 0.5, 0.1, 0.1, 0.0
    for _ in range(2):
        g = c * (x - o) + mu * x
        there = x + rho * math.copysign(1, g)
        x -= lr * (c * (there - o) + mu * there)
    federation = quadratics(curvature=[c], optimum=[o])
    run = run_parts(f"fedprox(mu={mu})+fedsam(rho={rho})", federation, rounds=1, epochs=2, lr=lr)
    assert run.vector.item() == pytest.approx(x, abs=1e-6)


def test_a_gradient_of_zero_stays_zero():
    federation = quadratics(curvature=[2.0], optimum=[0.0])
    assert run_parts("fedsam", federation).vector.item() == 0.0


@pytest.mark.parametrize("other", ["fedlc", "flood(T=1)", "scaffold", "fedprox", "feddecorr", "moon", "fedntd"])
def test_no_other_part_vanishes_beside_it(tiny, other):
    alone, both = run_parts("fedsam(rho=0.3)", tiny), run_parts(f"{other}+fedsam(rho=0.3)", tiny)
    assert not torch.equal(alone.vector, both.vector)
    assert not torch.equal(run_parts(other, tiny).vector, both.vector)


def test_it_trains_on_every_sample_twice(tiny):
    from undrift.bench.costs import count

    assert count("fedsam").training == 2 * count("fedavg").training


def test_private_entries_get_the_second_gradient_too():
    # with everything private each client trains alone, by SAM: from 0 one step to lr c (o + ρ)
    federation = quadratics(curvature=[2.0, 1.0], optimum=[3.0, 1.0])
    run = run_parts(["fedsam(rho=0.25)", 'private.named("*")'], federation, rounds=1, epochs=1, lr=0.1)
    for client, (c, o) in enumerate(((2.0, 3.0), (1.0, 1.0))):
        assert run.raw_state(client)["private"]["vector"].item() == pytest.approx(0.1 * c * (o + 0.25), abs=1e-6)


def test_bad_values_are_refused():
    with pytest.raises(BadRequest, match="fedsam: rho"):
        objectives.fedsam(rho=-1)
