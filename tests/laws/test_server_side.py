"""Laws of FedNova, server momentum and FedMR, and of the plain mean they are compared with."""

from __future__ import annotations

import pytest
import torch

from undrift import testing
from undrift.core.errors import BadRequest
from undrift.methods import server as updates
from undrift.methods.combine import fednova
from undrift.testing import quadratics, run_parts, small_network


def normed():
    return small_network(5, 3, norm=True)


# ---- FedNova -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fednova_with_equal_steps_is_fedavg(momentum):
    equal = testing.tiny(sizes=[30, 25, 20, 32])  # two batches of 16 each
    runs = [run_parts(m, equal, momentum=momentum, model=normed) for m in ("fednova", "fedavg")]
    assert torch.allclose(runs[0].vector, runs[1].vector, rtol=0, atol=1e-6)


def test_fednova_by_hand(server, replies, planned):
    # θ = 1; Δ = 2 in 1 step and 4 in 4 steps; p = ¼, ¾: (¼·1 + ¾·4) · (¼·2/1 + ¾·4/4) = 3.25 · 1.25 = 4.0625
    plan = planned()
    n, nP = plan.layout.n, plan.layout.nP
    sent = torch.ones(n)
    answers = replies(2, vectors=[sent + 2, sent + 4], sent=[sent, sent], effective_steps=[1.0, 4.0])
    mixed = fednova().combine(server(plan=plan, vector=sent), answers, [0.25, 0.75])
    assert torch.allclose(mixed[:nP], torch.tensor(1 + 4.0625))
    assert torch.allclose(mixed[nP:], torch.tensor(1 + 3.5)) or n == nP


def test_fednova_takes_buffers_by_the_plain_mean(tiny):
    runs = [run_parts(m, tiny, rounds=1, model=normed) for m in ("fednova", "fedavg")]
    nP = runs[0].setup.plan.layout.nP
    assert torch.equal(runs[0].vector[nP:], runs[1].vector[nP:])
    assert not torch.equal(runs[0].vector[:nP], runs[1].vector[:nP])


def test_fednova_removes_the_bias_towards_clients_with_more_steps():
    # Flat valleys: every step moves by η·c·|o|, so FedAvg's mean moves with the steps and FedNova's does not.
    # Clients with 1 and 9 samples, batch 1: 1 step against 9; curvature 1e-3, optima ±1000: gradients ∓1.
    federation = quadratics([1e-3, 1e-3], [1e3, -1e3], samples=[1, 9])
    settings = {"epochs": 1, "rounds": 1, "batch": 1}
    assert run_parts("fednova@uniform", federation, **settings).vector.item() == pytest.approx(0, abs=1e-3)
    assert run_parts("fedavg-uniform", federation, **settings).vector.item() == pytest.approx(-0.4, abs=1e-3)


@pytest.mark.parametrize("other", ["fliu", "local", "fedfomo", "fedmr"])
def test_fednova_is_refused_where_a_change_is_not_made_of_steps_from_one_model(tiny, other):
    with pytest.raises(BadRequest, match="fednova"):
        run_parts(f"fednova+{other}", tiny)


def test_fednova_counts_a_proximal_pull(tiny):
    # a ← (1 − ημ)a + 1: with μ the same steps count less, so the noted mean falls.
    free, pulled = (run_parts(m, tiny, rounds=1).notes("steps")[0][2] for m in ("fednova", "fednova+fedprox(mu=1)"))
    assert pulled < free
    assert pulled == pytest.approx(sum_of_steps(tiny), rel=1e-6)


def sum_of_steps(federation):
    total = sum(federation.sizes)
    mean = 0.0
    for n in federation.sizes:
        a = 0.0
        for _ in range(2 * -(-int(n) // 16)):
            a = (1 - 0.1) * a + 1
        mean += n / total * a
    return mean


# ---- momentum ------------------------------------------------------------------------------------------------------


def test_momentum_zero_is_fedavg_bit_for_bit(tiny):
    runs = [run_parts(m, tiny, rounds=5, model=normed) for m in ("fedavgm(rho=0)", "fedavg")]
    assert torch.equal(runs[0].vector, runs[1].vector)


def test_momentum_by_hand(server, planned):
    plan = planned()
    part, window = updates.momentum(0.5), server(plan=plan, vector=torch.zeros(plan.layout.n))
    window.memory = part.init_server(window)
    vectors = []
    for change in (1.0, 1.0, 0.0):  # v = 1, 1.5, 0.75; θ = 1, 2.5, 3.25
        window.vector = part.step(window, window.vector + change, None)
        vectors.append(window.vector[0].item())
    assert vectors == pytest.approx([1.0, 2.5, 3.25])
    assert torch.allclose(window.memory, torch.tensor(0.75))


def test_momentum_leaves_buffers_to_the_mean(server, tiny):
    run = run_parts("fedavgm", tiny, rounds=6, model=normed)
    layout = run.setup.plan.layout
    assert run.memory.shape == (layout.nP,)
    variance = [layout.part(run.vector, e.name) for e in layout.entries if e.name.endswith("running_var")]
    assert all((v > 0).all() for v in variance)


@pytest.mark.parametrize("rho", [-0.1, 1.0, float("nan")])
def test_bad_momentum_is_refused(rho):
    with pytest.raises(BadRequest, match="momentum: rho must be"):
        updates.momentum(rho)


# ---- FedMR ---------------------------------------------------------------------------------------------------------


def test_fedmr_with_one_client_is_fedavg_bit_for_bit(tiny):
    for unit in ("key", "module"):
        runs = [run_parts(m, tiny, rounds=4, cohort=1, model=normed) for m in (f"fedmr(T1=0, unit={unit})", "fedavg")]
        assert torch.equal(runs[0].vector, runs[1].vector)


def test_fedmr_in_its_warm_up_is_fedavg_bit_for_bit_and_then_differs(tiny):
    plain = run_parts("fedavg", tiny, rounds=4)
    assert torch.equal(run_parts("fedmr(T1=3)", tiny, rounds=4).vector, plain.vector)
    assert not torch.equal(run_parts("fedmr(T1=2)", tiny, rounds=4).vector, plain.vector)


@pytest.mark.parametrize("unit", ["key", "module"])
def test_fedmr_uses_every_unit_of_every_model_once_and_keeps_it_whole(tiny, unit):
    run = run_parts(f"fedmr(T1=0, unit={unit})", tiny, rounds=1, model=normed)
    plain = run_parts("local", tiny, rounds=1, model=normed)  # the same first round; its states are the local models
    trained, models, layout = [plain.state(k) for k in range(4)], run.memory, run.setup.plan.layout
    sources = {}
    for entry in layout.entries:
        if len({tuple(t[entry.place].tolist()) for t in trained}) < 4:
            continue  # a bias in front of BatchNorm hardly moves: it does not identify the client
        origins = [
            next(k for k, t in enumerate(trained) if torch.equal(m[entry.place], t[entry.place])) for m in models
        ]
        assert sorted(origins) == [0, 1, 2, 3]
        sources.setdefault(entry.module, []).append(origins)
    together = all(all(d == origins[0] for d in origins) for origins in sources.values())
    assert together == (unit == "module")


def test_fedmr_evaluates_the_mean_of_the_local_models(tiny):
    run = run_parts("fedmr(T1=0)", tiny, rounds=3)
    assert torch.equal(run.vector, run.sent)
    mean = torch.stack(run.memory).mean(0)
    uniform = run_parts("fedmr(T1=0)@uniform", tiny, rounds=1)
    assert torch.allclose(uniform.vector, torch.stack(uniform.memory).mean(0), atol=1e-6)
    assert mean.shape == run.vector.shape


def test_fedmr_assigns_models_cyclically(server):
    window = server(memory=[torch.zeros(1), torch.ones(1)], vector=torch.tensor([7.0]))
    sent = [updates.fedmr(T1=0).model_for(window, client, position).item() for position, client in enumerate((4, 6, 9))]
    assert sent == [0.0, 1.0, 0.0]
    window.memory = []
    assert updates.fedmr(T1=0).model_for(window, 4, 0).item() == 7.0


def test_fedmr_is_refused_with_a_part_that_moves_the_start(tiny):
    with pytest.raises(BadRequest, match="sends every client another model"):
        run_parts("fedmr+fliu", tiny)


def test_fedmr_defaults_and_warnings(planned):
    assert updates.fedmr().resolve(planned(rounds=2000)).T1 == 100
    assert ["plain averaging" in p.sentence for p in updates.fedmr(T1=9).check(planned(rounds=10))] == [True]
    assert list(updates.fedmr(T1=8).check(planned(rounds=10))) == []
    for values in ({"T1": -1}, {"unit": "layer"}):
        with pytest.raises(BadRequest, match="fedmr: "):
            updates.fedmr(**values)


# ---- the mean ------------------------------------------------------------------------------------------------------


def test_batchnorm_statistics_are_the_weighted_mean_of_the_clients(tiny):
    run, alone = (run_parts(m, tiny, rounds=1, model=normed) for m in ("fedavg", "local"))
    layout, total = run.setup.plan.layout, sum(tiny.sizes)
    for entry in layout.entries:
        if "running" in entry.name:
            mean = sum(n / total * alone.state(k)[entry.place].double() for k, n in enumerate(tiny.sizes))
            assert torch.allclose(run.vector[entry.place].double(), mean, rtol=0, atol=1e-6)
