"""Laws of fine-tuning."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import personalize
from undrift.testing import quadratics, run_parts, small_network
from undrift.testing import tiny as blobs


def rows(run, stage, data="own"):
    return {key: value for key, value in run.metrics(stage, data, "loss").items() if key[1] is not None}


def test_training_is_that_of_the_rest_of_the_method_bit_for_bit(tiny):
    run, plain = run_parts("finetune", tiny), run_parts("fedavg", tiny)
    assert torch.equal(run.vector, plain.vector)
    assert run.metrics("G", "global") == plain.metrics("G", "global")


def test_without_epochs_it_is_the_received_model(tiny):
    tuned, plain = run_parts("finetune(epochs=0)", tiny, rounds=2), run_parts("fedavg", tiny, rounds=2)
    assert rows(tuned, "L1") == pytest.approx(rows(plain, "L1"))


def test_the_tuned_model_by_hand():
    # L1 after round 0: from θ¹ = mean of 0.1·(1) and 0.1·3·(−1) = −0.1, one epoch (one step) on the client's own data:
    # client 0: x = −0.1 + 0.1·1.1 = 0.01, loss (0.01 − 1)²/2; client 1: x = −0.1 − 0.1·3·0.9 = −0.37, 3(0.63)²/2
    federation = quadratics(curvature=[1.0, 3.0], optimum=[1.0, -1.0])
    run = run_parts("finetune+fedavg-uniform", federation, rounds=1, epochs=1)
    losses = rows(run, "L1")
    assert losses[0, 0] == pytest.approx(0.99**2 / 2, rel=1e-5)
    assert losses[0, 1] == pytest.approx(3 * 0.63**2 / 2, rel=1e-5)
    # L2: one step from the model the round began with, 0: 0.1 and −0.3
    losses = rows(run, "L2")
    assert losses[0, 0] == pytest.approx(0.9**2 / 2, rel=1e-5)
    assert losses[0, 1] == pytest.approx(3 * 0.7**2 / 2, rel=1e-5)


def test_one_sample_and_batchnorm_are_harmless():
    run = run_parts("finetune", blobs(clients=3, sizes=[1, 17, 33]), model=lambda: small_network(5, 3, norm=True))
    assert torch.isfinite(run.vector).all()


def test_bad_values_are_refused():
    with pytest.raises(BadRequest, match="finetune"):
        personalize.finetune(epochs=-1)
