"""Laws of norm bounding."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import combine
from undrift.testing import run_parts, small_network


def test_it_clips_exactly(server, replies, planned):
    # lengths 5 and 0.5 under a bound of 1: (3, 4)/5 and (0.5, 0), halves
    plan = planned()
    old = torch.zeros(plan.layout.n)
    vectors = [old.clone(), old.clone()]
    vectors[0][:2] = torch.tensor([3.0, 4.0])
    vectors[1][0] = 0.5
    window = server(plan=plan, vector=old)
    out = combine.normbound(1.0).combine(window, replies(2, vectors=vectors, sent=[old] * 2), [0.5, 0.5])
    assert out[:2].tolist() == pytest.approx([0.55, 0.4])
    assert [value for name, value, _ in window.notes if name == "factor"] == pytest.approx([0.2, 1.0])


def test_no_update_is_longer_than_the_bound(tiny):
    run = run_parts("normbound(0.01)", tiny, rounds=1)
    assert (run.vector - run.setup.runtime.initial).norm().item() <= 0.01 * (1 + 1e-5)


def test_a_bound_that_does_not_bind_is_fedavg_bit_for_bit(tiny):
    assert torch.equal(run_parts("normbound(1e9)", tiny).vector, run_parts("fedavg", tiny).vector)


def test_by_default_half_of_the_clients_are_clipped(tiny):
    factors = [value for _, _, value in run_parts("normbound", tiny, rounds=1).notes("factor")]
    assert sum(factor < 1 for factor in factors) == 2


def test_statistics_stay_between_what_was_sent_and_what_came_back(tiny):
    run = run_parts("normbound(0.05)", tiny, model=lambda: small_network(5, 3, norm=True))
    assert (run.setup.plan.layout.part(run.vector, "1.running_var") > 0).all()


def test_an_update_of_zero_is_not_changed(server, replies, planned):
    plan = planned()
    old = torch.ones(plan.layout.n)
    cohort = replies(2, vectors=[old, old], sent=[old, old])
    out = combine.normbound(0.1).combine(server(plan=plan, vector=old), cohort, [0.5, 0.5])
    assert torch.equal(out, old)


def test_bad_values_are_refused():
    with pytest.raises(BadRequest, match="normbound"):
        combine.normbound(0.0)
