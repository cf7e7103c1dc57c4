"""Laws of bound weighting. The theorem is tested as a theorem: E_Q[X] in [l, u] for all Q in the Hellinger ball."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.core.errors import BadRequest
from undrift.engine.inline import Inline
from undrift.methods import weighting
from undrift.methods.weighting.bound import bounds, eta, jsd, jsd_of
from undrift.testing import run_parts, tiny

GRID = torch.linspace(0.02, 0.2, 10, dtype=torch.float64)


def moments(p, x):
    m = (p * x).sum()
    return m.item(), (p * (x - m) ** 2).sum().item()


def hellinger(p, q):
    return math.sqrt(max(0.0, 1 - (p * q).sqrt().sum().item()))


def worst(p, x, delta):
    """argmax of E_Q[X] over the ball. With b = √q it is max bᵀXb under ‖b‖ = 1 and ⟨b, √p⟩ ≥ 1 − δ², so
    b ∝ (λ − X)⁻¹√p; λ by bisection."""
    a, low, high = p.sqrt(), x.max().item(), x.max().item() + 1e6

    def at(lam):
        b = a / (lam - x)
        return b / b.norm()

    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if (at(middle) * a).sum() > 1 - delta**2 else (middle, high)
    return at(high) ** 2


@settings(max_examples=120, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), M2=st.sampled_from([0.25, 1.0, 4.0, 21.16]), delta=st.floats(0.01, 0.9))
def test_the_theorem_holds_for_random_and_for_worst_case_shifts(seed, M2, delta):
    draw = torch.Generator().manual_seed(seed)
    x = torch.rand(12, generator=draw, dtype=torch.float64) ** 3 * M2
    p = torch.rand(12, generator=draw, dtype=torch.float64).exp()
    p = p / p.sum()
    m, v = moments(p, x)
    u, l = (bound.item() for bound in bounds(m, v, M2, torch.tensor([delta], dtype=torch.float64)))
    for extreme, y in ((worst(p, x, delta), x), (worst(p, M2 - x, delta), x)):
        assert hellinger(p, extreme) <= delta + 1e-7
        assert l - 1e-9 * M2 <= (extreme * y).sum().item() <= u + 1e-9 * M2
    other = torch.rand(12, generator=draw, dtype=torch.float64)
    q = p.sqrt() + 0.3 * delta * other / other.norm()
    q = q**2 / (q**2).sum()
    if hellinger(p, q) <= delta:
        assert l - 1e-9 <= (q * x).sum().item() <= u + 1e-9


@pytest.mark.parametrize("M2", [1.0, 4.0])
def test_a_loss_of_two_values_attains_the_bound(M2):
    # X in {0, M2}: √p is a point on a circle at angle ψ, sin²ψ = m/M2; the ball allows the angle φ, cos φ = 1 − δ².
    # So the worst case is M2 sin²(ψ + φ), which is the formula.
    m, delta = 0.2 * M2, 0.3
    psi, phi = math.asin(math.sqrt(0.2)), math.acos(1 - delta**2)
    u, l = bounds(m, m * (M2 - m), M2, torch.tensor([delta], dtype=torch.float64))
    assert u.item() == pytest.approx(M2 * math.sin(psi + phi) ** 2, abs=1e-12)
    assert l.item() == pytest.approx(M2 * math.sin(psi - phi) ** 2 if phi < psi else 0.0, abs=1e-12)


def test_bounds_against_hand_values():
    # m = 0.5, v = 0.04, M² = 1, δ = 0.1: r = 0.01, r(2−r) = 0.0199, c = √0.0199 · 0.99 = 0.1396575
    # 2c√v = 0.0558630; 0.0199·(0.5 − 0.04/0.5) = 0.0083580
    u, l = bounds(0.5, 0.04, 1.0, torch.tensor([0.1], dtype=torch.float64))
    assert u.item() == pytest.approx(0.5 + 0.0558630 + 0.0083580, abs=1e-6)
    assert l.item() == pytest.approx(0.5 - 0.0558630 - 0.0083580, abs=1e-6)


def test_outside_of_the_radius_the_bounds_are_trivial():
    # m = 0.9, v = 0.04: u is valid up to r = 1 − [1 + 0.01/0.04]^(−1/2) = 0.1056, l up to 1 − [1 + 0.81/0.04]^(−1/2)
    u, l = bounds(0.9, 0.04, 1.0, torch.tensor([0.3, 0.33], dtype=torch.float64))
    assert u[0] < 1
    assert u[1] == 1
    assert (l > 0).all()
    assert bounds(0.0, 0.0, 1.0, GRID)[1].eq(0).all()
    assert bounds(1.0, 0.0, 1.0, GRID)[0].eq(1).all()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(place=st.integers(0, 2**20), share=st.floats(0, 1), M2=st.sampled_from([0.25, 1.0, 9.0]))
def test_eta_is_mirror_symmetric_and_stays_in_its_range(place, share, M2):
    m = place / 2**20  # so that 1 − m is exact
    v = share * m * (1 - m)
    wide = eta(m * M2, v * M2**2, M2, GRID)
    assert wide == pytest.approx(eta(M2 - m * M2, v * M2**2, M2, GRID), abs=1e-9 * M2)
    assert 0.303946 - 1e-6 <= wide / M2 <= 3.026150 + 1e-6


def test_a_perfect_and_an_always_wrong_client_get_the_same_eta():
    right, wrong = eta(0.0, 0.0, 1.0, GRID), eta(1.0, 0.0, 1.0, GRID)
    assert right == pytest.approx(wrong, abs=1e-12)
    assert right == pytest.approx(0.30394672, abs=1e-8)


def test_inside_validity_eta_is_the_sum_of_two_terms():
    # 4√v Σc + M² Σr(2−r) [1 − v/(m(M²−m))], Σc = 1.51307, Σr(2−r) = 0.30394672
    m, v, M2 = 0.7, 0.1, 2.0
    expected = 4 * math.sqrt(v) * 1.51307 + M2 * 0.30394672 * (1 - v / (m * (M2 - m)))
    assert eta(m, v, M2, GRID) == pytest.approx(expected, abs=1e-4)


def test_finite_sample_terms_widen_and_vanish_with_n():
    plain = eta(0.3, 0.02, 1.0, GRID)
    assert eta(0.3, 0.02, 1.0, GRID, n=1) == 10  # trivial: ten points of width 1
    assert plain < eta(0.3, 0.02, 1.0, GRID, n=10**4) < eta(0.3, 0.02, 1.0, GRID, n=100) <= 10
    assert eta(0.3, 0.02, 1.0, GRID, n=10**14) == pytest.approx(plain, abs=1e-4)


def test_the_jsd_closed_form_is_the_divergence():
    p = torch.rand(500, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(1)
    one_hot = torch.zeros_like(p)
    one_hot[:, 2] = 1
    mid = (p + one_hot) / 2

    def kl(a, b):
        return (torch.special.xlogy(a, a) - torch.special.xlogy(a, b)).sum(1) / math.log(2)

    assert torch.allclose(jsd_of(p[:, 2]), (kl(p, mid) + kl(one_hot, mid)) / 2, rtol=0, atol=1e-12)
    assert jsd_of(torch.tensor([0.0, 1.0], dtype=torch.float64)).tolist() == [1.0, 0.0]
    assert jsd(torch.tensor([[0.0, 800.0]], dtype=torch.float64), torch.tensor([0])).item() == 1.0


def test_weights_are_inverse_and_controls_by_hand(server, replies):
    cohort = replies(3, n=[10, 20, 40], client_messages=[{"spread": s} for s in (0.5, 1.0, 2.0)])
    assert weighting.bound().weights(server(), cohort).tolist() == [2.0, 1.0, 0.5]
    assert weighting.bound(invert="n_over_eta").weights(server(), cohort).tolist() == [20.0, 20.0, 20.0]
    permuted = weighting.bound(invert="permuted").weights(server(), cohort)
    assert sorted(permuted.tolist()) == [0.5, 1.0, 2.0]
    turned = replace(cohort, ids=cohort.ids[::-1], n=cohort.n[::-1], client_messages=cohort.client_messages[::-1])
    assert torch.equal(weighting.bound(invert="permuted").weights(server(), turned).flip(0), permuted)


@pytest.mark.parametrize("options", ["", "loss=zero_one", "loss=ce", "moment=1", "when=after", "on=held",
                                     "when=after, on=held, finite=true", "start=0, points=5, radius=0.5"])  # fmt: skip
def test_a_client_notes_what_its_weight_depends_on(options):
    run = run_parts(f"bound({options})", tiny(), rounds=1)
    part = run.setup.method.one("weighting")
    etas = {client: value for _, client, value in run.notes("eta")}
    upper, lower = ({client: value for _, client, value in run.notes(name)} for name in ("u", "l"))
    weights = {client: value for _, client, value in run.notes("weight")}
    total = sum(1 / value for value in etas.values())
    for client in range(4):
        assert etas[client] == pytest.approx(sum(a - b for a, b in zip(upper[client], lower[client])))
        assert weights[client] == pytest.approx(1 / etas[client] / total)
        assert len(upper[client]) == part.points
    assert (pytest.approx(2 * math.log(3)) if "ce" in options else 1.0) == part.M


@pytest.mark.parametrize("invert", ["mean_loss", "sqrt_v", "n_over_eta", "permuted"])
def test_controls_run(invert):
    weights = [value for _, _, value in run_parts(f"bound(invert={invert})", tiny(), rounds=1).notes("weight")]
    assert sum(weights) == pytest.approx(1)
    assert min(weights) > 0


def test_held_out_samples_are_the_same_in_every_round_and_never_all(job):
    part = weighting.bound(on="held", share=0.3)
    assert torch.equal(part.hold_out(job(n=10)), part.hold_out(job(n=10, round=5)))
    assert [len(part.hold_out(job(n=n))) for n in (1, 2, 3, 10, 100)] == [0, 1, 1, 3, 30]
    assert len(weighting.bound().hold_out(job(n=10))) == 0


@pytest.mark.parametrize(("options", "share"), [("", 1.0), ("when=after", 1.0), ("on=held", 0.2)])
def test_it_costs_one_pass_over_what_it_measures_and_sends_one_number(tiny, options, share):
    run = run_parts(f"bound({options})", tiny, rounds=1)
    loop = run.setup.loop(Inline(run.setup.runtime, run.store.states), run.store)
    server_state = loop.begin()
    (reply,) = loop.engine.map(loop.orders(loop.open_round(server_state), [0]))
    assert reply.samples_scored == round(share * run.setup.federation.sizes[0])
    assert list(reply.client_messages["weighting.bound"]) == ["spread"]


def test_on_the_test_slice_it_measures_the_clients_own_test_samples(tiny):
    run = run_parts("bound(on=test)", tiny, rounds=1)
    runtime = run.setup.runtime
    flat = runtime.spare(0)
    flat.load(runtime.initial)
    for _, client, noted in run.notes("eta"):
        x, y = runtime.federation.own_test(client)
        X = jsd(flat(x).double(), y).square()
        assert noted == pytest.approx(eta(X.mean().item(), X.var().item(), 1.0, GRID), rel=1e-5)
    assert any("weighs the clients by their test data" in notice for notice in run.setup.notices)
    assert not any("test data" in notice for notice in run_parts("bound", tiny, rounds=1).setup.notices)


def test_under_feddyn_it_can_measure_the_evaluated_vector(tiny):
    """FedDyn sends Θ = θ̄ + Σh/N. In the last round the clients measure what the round before evaluated."""
    short, run = (run_parts("feddyn@bound(under=evaluated)", tiny, rounds=rounds, lr_decay=1.0) for rounds in (2, 3))
    assert not torch.equal(short.server_state.evaluated, short.server_state.vector)
    flat = run.setup.runtime.spare(0)
    flat.load(short.server_state.evaluated)
    for _, client, noted in run.notes("eta")[-4:]:
        x, y = run.setup.runtime.train(client)
        X = jsd(flat(x).double(), y).square()
        assert noted == pytest.approx(eta(X.mean().item(), X.var().item(), 1.0, GRID), rel=1e-5)
    sent = [value for _, _, value in run_parts("feddyn@bound", tiny).notes("eta")]
    assert sent[-4:] != pytest.approx([value for _, _, value in run.notes("eta")][-4:])


def test_where_the_sent_vector_is_the_evaluated_one_the_option_changes_nothing(tiny):
    plain, other = (run_parts(f"bound({options})", tiny).notes("eta") for options in ("", "under=evaluated"))
    assert [value for _, _, value in other] == pytest.approx([value for _, _, value in plain], rel=1e-5)
    with pytest.raises(BadRequest, match="measures before training"):
        weighting.bound(under="evaluated", when="after")
    with pytest.raises(BadRequest, match="cannot be mixed"):
        weighting.mix([weighting.bound(under="evaluated")], [1.0])


def test_it_declares_when_it_measures_the_received_model():
    assert weighting.bound().measures == "received"
    assert weighting.bound(when="after").measures == ""


def test_losses_that_are_not_finite_give_a_number_that_is_not():
    assert math.isnan(eta(math.nan, math.nan, 1.0, GRID))


@pytest.mark.parametrize("values", [{"radius": 0}, {"radius": 1.5}, {"points": 0}, {"start": 0.3}, {"M": 2},
                                    {"M": -1, "loss": "ce"}, {"loss": "mse"}, {"moment": 3}, {"share": 1},
                                    {"invert": "x"}])  # fmt: skip
def test_bad_values_are_refused(values):
    with pytest.raises(BadRequest, match="bound"):
        weighting.bound(**values)
