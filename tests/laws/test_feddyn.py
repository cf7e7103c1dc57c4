"""Laws of FedDyn. Two clients minimise (x − 1)²/2 and 3(x + 1)²/2, with 2 and 3 samples."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import objectives
from undrift.testing import quadratics, run_parts


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_reaches_the_size_weighted_optimum_where_fedavg_stays_biased(momentum):
    federation = quadratics([1.0, 3.0], [1.0, -1.0], samples=[2, 3])
    optimum = (2 * 1 * 1 + 3 * 3 * -1) / (2 * 1 + 3 * 3)  # −7/11
    settings = {"evaluate_every": 100, "epochs": 10, "rounds": 40, "momentum": momentum}
    run = run_parts("feddyn(alpha=1)", federation, **settings)
    plain = run_parts("fedavg", federation, **settings)
    assert run.vector.item() == pytest.approx(optimum, abs=1e-5)
    assert abs(plain.vector.item() - optimum) > 0.05


def test_its_first_mean_tends_to_fedavgs_as_alpha_vanishes(tiny):
    plain = run_parts("fedavg-uniform", tiny, rounds=1).vector
    away = [(run_parts(f"feddyn(alpha={a})", tiny, rounds=1).vector - plain).norm().item() for a in (1e-1, 1e-3, 1e-5)]
    assert away[0] > away[1] > away[2]
    assert away[2] < 1e-5


def test_what_is_sent_is_the_evaluated_mean_plus_the_mean_of_all_h(tiny):
    run = run_parts("feddyn(alpha=0.1)", tiny, rounds=4, lose={(2, 0), (3, 1)})
    nP = run.setup.plan.layout.nP
    h = torch.stack([run.state(client) for client in range(tiny.clients)]).mean(0)
    assert torch.allclose(run.memory["h"], h, rtol=0, atol=1e-6)
    assert torch.allclose(run.sent[:nP], run.vector[:nP] + h, rtol=0, atol=1e-6)
    assert torch.equal(run.memory["evaluated"], run.vector)


def test_buffers_are_the_plain_mean(tiny):
    from undrift.testing import small_network

    run = run_parts("feddyn", tiny, model=lambda: small_network(5, 3, norm=True))
    nP = run.setup.plan.layout.nP
    assert torch.equal(run.sent[nP:], run.vector[nP:])
    assert not torch.equal(run.sent[:nP], run.vector[:nP])


def test_gradient_is_that_of_the_regulariser_by_finite_differences(job, planned):
    # α_k ⟨P, h − Θ⟩ + (α_k/2) ‖P‖², with α_k = α n/(N n_k) = 0.2 · 126/(4 · 9) = 0.7
    plan, step = planned(total=126, clients=4), 1e-4
    nP = plan.layout.nP
    draw = torch.Generator().manual_seed(0)
    received, P, h, way = (torch.randn(plan.layout.n, generator=draw, dtype=torch.float64) for _ in range(4))

    def term(p: torch.Tensor) -> float:
        return (0.7 * torch.dot(p[:nP], h[:nP] - received[:nP]) + 0.35 * p[:nP].square().sum()).item()

    part, client = objectives.feddyn(alpha=0.2), job(plan=plan, received=received, n=9)
    G = torch.zeros(nP, dtype=torch.float64)
    part.gradient(P[:nP], G, None, client, part.before_training(client, h[:nP], {}))
    slope = (term(P + step * way) - term(P - step * way)) / (2 * step)
    assert torch.dot(G, way[:nP]).item() == pytest.approx(slope, rel=1e-6)
    assert part.proximal_strength(client) == pytest.approx(0.7)


def test_the_pull_on_tiny_clients_is_capped_and_noted_and_the_cap_can_be_removed(job, planned):
    plan = planned(total=400, clients=4)
    small = job(plan=plan, n=1, received=torch.zeros(plan.layout.n))
    assert objectives.feddyn(alpha=0.01).proximal_strength(small) == pytest.approx(0.1)  # 10 α instead of 100 α
    assert objectives.feddyn(alpha=0.01, cap=None).proximal_strength(small) == pytest.approx(1.0)
    objectives.feddyn(alpha=0.01).before_training(small, torch.zeros(plan.layout.nP), {})
    assert small.notes == {"capped": pytest.approx(0.1)}
    large = job(plan=plan, n=100, received=torch.zeros(plan.layout.n))
    objectives.feddyn(alpha=0.01).before_training(large, torch.zeros(plan.layout.nP), {})
    assert large.notes == {}


def test_the_first_step_is_not_pulled(tiny):
    # At the received model with h = 0 the regulariser has no gradient.
    settings = {"rounds": 1, "epochs": 1, "batch": 1000}
    assert torch.equal(
        run_parts("feddyn", tiny, **settings).vector, run_parts("fedavg-uniform", tiny, **settings).vector
    )


@pytest.mark.parametrize(("decay", "step"), [("false", 0.5), ("true", 0.4)])
def test_the_clip_takes_the_quadratic_term_along_or_not_by_hand(decay, step):
    # (x − 1)²/2, α_k = 1, clip 0.5. Round 0: gradient −1, clipped to −0.5, so x = 0.05, h = 0.05, Θ = 0.1.
    # Round 1: −0.9 and −0.05 and +0.1 are clipped to −0.5 together; or the first two are, and 0.1 is added: −0.4.
    run = run_parts(f"feddyn(alpha=1, decay={decay})", quadratics([1.0], [1.0]), rounds=2, epochs=1, clip=0.5)
    assert run.vector.item() == pytest.approx(0.1 + 0.1 * step, rel=1e-4)


def test_without_a_clip_the_two_forms_are_one(tiny):
    whole, after = (run_parts(f"feddyn(alpha=0.1, decay={word})", tiny).vector for word in ("false", "true"))
    assert torch.allclose(whole, after, rtol=0, atol=1e-6)
    clipped = run_parts("feddyn(alpha=0.1, decay=true)", tiny, clip=0.05).vector
    assert not torch.allclose(clipped, run_parts("feddyn(alpha=0.1)", tiny, clip=0.05).vector, rtol=0, atol=1e-6)


def test_private_entries_do_not_decay(tiny):
    # FedBN's private entries have no h and no Θ: neither the linear term nor the decay may act on them.
    from undrift.testing import small_network

    def model():
        return small_network(5, 3, norm=True)

    settings = {"rounds": 1, "epochs": 1, "batch": 1000, "clip": 1e-3}
    plain = run_parts("fedbn", tiny, model=model, **settings)
    decayed = run_parts("fedbn+feddyn(alpha=5, decay=true)", tiny, model=model, **settings)
    for client in range(4):
        own, other = (torch.as_tensor(run.raw_state(client)["private"]["vector"]) for run in (plain, decayed))
        assert torch.allclose(own, other, rtol=0, atol=1e-3 * 0.1 * 2)


def test_another_server_update_is_refused(tiny):
    with pytest.raises(BadRequest):
        run_parts("feddyn+fedavgm", tiny)
    with pytest.raises(BadRequest, match="feddyn is also the server part"):
        run_parts(["feddyn", "server.momentum(0.5)"], tiny)


def test_bad_values_are_refused():
    for values in ({"alpha": 0.0}, {"alpha": float("nan")}, {"cap": 0.0}):
        with pytest.raises(BadRequest, match="feddyn: "):
            objectives.feddyn(**values)
