"""Laws of FedProx."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import objectives
from undrift.testing import quadratics, run_parts


def test_mu_zero_is_fedavg_bit_for_bit(tiny):
    for momentum in (0.0, 0.9):
        pulled, plain = (run_parts(m, tiny, momentum=momentum) for m in ("fedprox(mu=0)", "fedavg"))
        assert torch.equal(pulled.vector, plain.vector)


def test_gradient_is_that_of_the_proximal_term_by_finite_differences(job, planned):
    plan, mu, h = planned(), 0.3, 1e-4
    nP = plan.layout.nP
    draw = torch.Generator().manual_seed(0)
    received, P, way = (torch.randn(plan.layout.n, generator=draw, dtype=torch.float64) for _ in range(3))

    def term(p: torch.Tensor) -> float:
        return (mu / 2 * (p[:nP] - received[:nP]).square().sum()).item()

    part, client = objectives.fedprox(mu), job(plan=plan, received=received)
    G = torch.zeros(nP, dtype=torch.float64)
    part.gradient(P[:nP], G, None, client, part.before_training(client, None, {}))
    slope = (term(P + h * way) - term(P - h * way)) / (2 * h)
    assert torch.dot(G, way[:nP]).item() == pytest.approx(slope, rel=1e-6)
    assert part.proximal_strength(client) == mu


def test_two_steps_by_hand():
    # x ← x − η (c (x − o) + μ (x − x₀)); from x₀ = 0 with c = 2, o = 1, μ = 0.5, η = 0.1:
    # 0 → 0.2, then 0.2 − 0.1 (2 (0.2 − 1) + 0.5·0.2) = 0.35
    run = run_parts("fedprox(mu=0.5)", quadratics([2.0], [1.0]), rounds=1, epochs=2)
    assert run.vector.item() == pytest.approx(0.35, abs=1e-7)


def test_adaptive_mu_rises_with_the_loss_and_falls_after_five_falls(server, replies):
    part = objectives.fedprox(mu=0.05, adaptive=True)
    window = server()
    window.memory = part.init_server(window)
    sent = []
    for loss in [1.0, 2.0, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2, 1.1, 1.0, 0.9]:
        sent.append(round(part.broadcast(window)["mu"], 6))
        part.receive(window, replies(2, loss=[loss, loss]))
    # round 1 rose: 0.15; rounds 2–6 fell: 0.05; rounds 7–11 fell: max(0, −0.05) = 0; two falls more change nothing
    assert sent == [0.05, 0.05, 0.15, 0.15, 0.15, 0.15, 0.15, 0.05, 0.05, 0.05, 0.05, 0.05, 0.0]


def test_an_equal_loss_restarts_the_count_of_falls(server, replies):
    part = objectives.fedprox(mu=1.0, adaptive=True)
    window = server()
    window.memory = part.init_server(window)
    for loss in [5, 4, 3, 2, 1, 1, 0.9, 0.8, 0.7, 0.6]:
        part.receive(window, replies(1, loss=[float(loss)]))
    assert window.memory["mu"] == 1.0
    part.receive(window, replies(1, loss=[0.5]))
    assert window.memory["mu"] == pytest.approx(0.9)


def test_the_loss_that_adapts_mu_is_weighted_by_size(server, replies):
    part = objectives.fedprox(adaptive=True)
    window = server()
    window.memory = part.init_server(window)
    part.receive(window, replies(2, n=[3, 1], loss=[1.0, 5.0]))
    assert window.memory["loss"] == 2.0  # (3·1 + 1·5)/4


def test_an_adaptive_mu_reaches_the_clients_and_the_record(tiny):
    run = run_parts("fedprox(mu=0.5, adaptive=true)", tiny, rounds=3)
    assert next(value for _, _, value in run.notes("mu")) == 0.5
    assert not torch.equal(run.vector, run_parts("fedavg", tiny, rounds=3).vector)


def test_an_adaptive_mu_under_a_rule_that_needs_the_step_count_is_refused(tiny):
    with pytest.raises(BadRequest, match="scaffold needs the normalised step count"):
        run_parts("scaffold+fedprox(adaptive=true)", tiny)


@pytest.mark.parametrize("mu", [-0.1, float("nan"), float("inf")])
def test_a_bad_mu_is_refused(mu):
    with pytest.raises(BadRequest, match="fedprox: mu must be"):
        objectives.fedprox(mu)
