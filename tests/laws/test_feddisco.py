"""Laws of FedDisco."""

from __future__ import annotations

import math

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import weighting
from undrift.testing import run_parts


def test_the_distance_is_kl_to_uniform(job):
    part = weighting.feddisco()
    skewed = 2 * 0.25 * math.log(0.75) + 0.5 * math.log(1.5)
    for counts, expected in (([5, 5, 5], 0.0), ([9, 0, 0], math.log(3)), ([1, 1, 2], skewed)):
        state, message = part.after_training(job(counts=torch.tensor(counts)), None, None)
        assert state is None
        assert message["distance"] == pytest.approx(expected, abs=1e-12)


def test_weights_by_hand(server, replies):
    # shares 0.2, 0.3, 0.5; d/Σd = 0, 0.25, 0.75; a = 0.5, b = 0.1: 0.3, 0.275, 0.225
    cohort = replies(3, n=[20, 30, 50], client_messages=[{"distance": d} for d in (0.0, 0.5, 1.5)])
    weights = weighting.feddisco().weights(server(), cohort)
    assert (weights / weights.sum()).tolist() == pytest.approx([0.3 / 0.8, 0.275 / 0.8, 0.225 / 0.8])
    assert weighting.feddisco(a=3, b=0).weights(server(), cohort)[2] == 0  # relu


def test_without_a_and_b_it_is_size_weighting_bit_for_bit(tiny):
    assert torch.equal(run_parts("feddisco(a=0, b=0)", tiny).vector, run_parts("fedavg", tiny).vector)


def test_uniform_labels_everywhere_leave_size_and_b(server, replies):
    cohort = replies(2, n=[10, 30], client_messages=[{"distance": 0.0}] * 2)
    weights = weighting.feddisco().weights(server(), cohort)
    assert (weights / weights.sum()).tolist() == pytest.approx([0.35 / 1.2, 0.85 / 1.2])


def test_bad_values_are_refused():
    with pytest.raises(BadRequest, match="feddisco"):
        weighting.feddisco(a=-1)
