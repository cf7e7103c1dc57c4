"""Laws of Ditto."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import personalize
from undrift.testing import quadratics, run_parts


def test_the_global_half_is_the_rest_of_the_method_bit_for_bit(tiny):
    assert torch.equal(run_parts("ditto", tiny).vector, run_parts("fedavg", tiny).vector)


def test_the_personal_model_ends_between_its_own_optimum_and_the_global_model():
    # c(v − o) + λ(v − θ) = 0, so v = (c o + λ θ)/(c + λ)
    federation = quadratics(curvature=[1.0, 3.0], optimum=[1.0, -1.0])
    run = run_parts("ditto(lam=0.5)", federation, rounds=120, epochs=1, lr=0.1, batch=4)
    theta = run.vector.item()
    for client, (c, o) in enumerate(((1.0, 1.0), (3.0, -1.0))):
        assert run.state(client).item() == pytest.approx((c * o + 0.5 * theta) / (c + 0.5), abs=1e-3)


def test_without_a_pull_it_is_training_alone(tiny):
    alone, ditto = run_parts("local", tiny, rounds=1), run_parts("ditto(lam=0)", tiny, rounds=1)
    for client in range(4):
        assert torch.allclose(ditto.state(client), alone.state(client), rtol=0, atol=1e-6)


def test_the_client_uses_its_own_model(tiny):
    run = run_parts("ditto(lam=0)", tiny, rounds=8)
    plain = run_parts("fedavg", tiny, rounds=8)
    assert run.metrics("L1", "own", "loss") != plain.metrics("L1", "own", "loss")
    assert run.metrics("G", "global") == plain.metrics("G", "global")


def test_bad_values_are_refused():
    with pytest.raises(BadRequest, match="ditto"):
        personalize.ditto(lam=-1)
