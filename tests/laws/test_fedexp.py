"""Laws of FedExP."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import combine
from undrift.methods import server as servers
from undrift.methods.naming import method
from undrift.testing import quadratics, run_parts, small_network


def stepped(server, replies, changes, weights, planned, round=0, decay=1.0, **fields):
    plan = planned(lr_decay=decay)
    old = torch.zeros(plan.layout.n)
    vectors = []
    for change in changes:
        vector = old.clone()
        vector[: len(change)] = torch.tensor(change)
        vectors.append(vector)
    window = server(plan=plan, round=round, vector=old)
    cohort = replies(len(changes), vectors=vectors, sent=[old] * len(changes))
    part = servers.fedexp(**fields)
    mixed = part.combine(window, cohort, weights)
    new = part.step(window, mixed, cohort)
    window.vector = new
    return new, part.evaluated(window), window.notes[-1][1]


def test_the_factor_by_hand(server, replies, planned):
    # Δ = (3, 0) and (0, 4), p = ¼, ¾: Σp‖Δ‖² = 9/4 + 12 = 14.25; Δ̄ = (0.75, 3), ‖Δ̄‖² = 9.5625
    # 14.25/(2·(9.5625 + 1)) = 0.674…, so the factor is 1; with opposed updates (3, 0), (−1, 0): Δ̄ = 0, 3/(2·1) = 1.5
    new, _, factor = stepped(server, replies, [[3.0, 0.0], [0.0, 4.0]], [0.25, 0.75], planned, epsilon=1.0)
    assert factor == 1
    assert new[:2].tolist() == [0.75, 3.0]
    _, _, factor = stepped(server, replies, [[3.0], [-1.0]], [0.25, 0.75], planned, epsilon=1.0)
    assert factor == pytest.approx(1.5)
    # (4, 1) and (−2, 1), halves: Δ̄ = (1, 1), Σp‖Δ‖² = 17/2 + 5/2 = 11; 11/(2·(2 + 0.5)) = 2.2
    new, evaluated, factor = stepped(server, replies, [[4.0, 1.0], [-2.0, 1.0]], [0.5, 0.5], planned, epsilon=0.5)
    assert factor == pytest.approx(2.2)
    assert new[:2].tolist() == pytest.approx([2.2, 2.2])
    assert evaluated[:2].tolist() == pytest.approx([1.1, 1.1])  # the mean with the iterate before, 0


def test_epsilon_decays_with_the_square_of_the_rate(server, replies, planned):
    # γ = 0.5 in round 2: ε = 16 · 0.5⁴ = 1
    _, _, factor = stepped(server, replies, [[3.0], [-1.0]], [0.25, 0.75], planned, 2, 0.5, epsilon=16.0)
    assert factor == pytest.approx(1.5)


def test_one_client_takes_its_own_step(server, replies, planned):
    assert stepped(server, replies, [[3.0, 1.0]], [1.0], planned)[2] == 1


def test_while_the_factor_is_one_it_is_fedavg_bit_for_bit(tiny):
    plain = run_parts("fedavg", tiny)
    run = run_parts("fedexp(epsilon=1e9)", tiny)
    assert all(value == 1 for _, _, value in run.notes("factor"))
    assert torch.equal(run.sent, plain.sent)
    assert torch.equal(run.vector, (run.sent + run_parts("fedavg", tiny, rounds=2).sent) / 2)


def test_it_extrapolates_where_clients_disagree():
    federation = quadratics(curvature=[1.0, 1.0], optimum=[3.0, -1.0])
    factors = [value for _, _, value in run_parts("fedexp", federation, rounds=10, epochs=5).notes("factor")]
    assert max(factors) > 1


def test_running_variances_stay_positive(tiny):
    run = run_parts("fedexp(epsilon=1e-6)", tiny, model=lambda: small_network(5, 3, norm=True), rounds=5, lr=0.5)
    layout = run.setup.plan.layout
    for vector in (run.vector, run.sent):
        assert (layout.part(vector, "1.running_var") >= 0).all()


def test_a_combine_that_is_not_the_mean_is_refused():
    with pytest.raises(BadRequest, match="fedexp"):
        method("fedexp", combine.median())
    with pytest.raises(BadRequest, match="fedexp"):
        method("fedexp+fednova")


def test_bad_values_are_refused():
    with pytest.raises(BadRequest, match="fedexp"):
        servers.fedexp(epsilon=0)
