"""Laws of pFedMe."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import personalize
from undrift.testing import quadratics, run_parts

CLIENTS = ((1.0, 1.0), (3.0, -1.0))


def federation():
    return quadratics(curvature=[c for c, _ in CLIENTS], optimum=[o for _, o in CLIENTS])


def test_one_round_by_hand():
    # θ starts at w = 0; two steps θ ← θ − α (c (θ − o) + λ (θ − w)), then w ← w − η λ (w − θ)
    lam, alpha, eta = 2.0, 0.1, 0.2
    run = run_parts(f"pfedme(lam={lam}, rate={alpha}, steps=2)", federation(), rounds=1, epochs=1, lr=eta)
    ends = []
    for client, (c, o) in enumerate(CLIENTS):
        theta, w = 0.0, 0.0
        for _ in range(2):
            theta -= alpha * (c * (theta - o) + lam * (theta - w))
        w -= eta * lam * (w - theta)
        ends.append(w)
        assert run.state(client).item() == pytest.approx(theta, abs=1e-6)
    assert run.vector.item() == pytest.approx(sum(ends) / 2, abs=1e-6)


def test_its_limit_is_the_optimum_of_the_envelopes():
    # the envelope of c (x − o)²/2 has curvature c λ/(c + λ); θ_k = (c o + λ w)/(c + λ)
    lam = 2.0
    run = run_parts(f"pfedme(lam={lam}, rate=0.1, steps=60)", federation(), rounds=200, epochs=1, lr=0.1)
    curves = [c * lam / (c + lam) for c, _ in CLIENTS]
    w = sum(a * o for a, (_, o) in zip(curves, CLIENTS, strict=True)) / sum(curves)
    assert run.vector.item() == pytest.approx(w, abs=1e-3)
    for client, (c, o) in enumerate(CLIENTS):
        assert run.state(client).item() == pytest.approx((c * o + lam * w) / (c + lam), abs=1e-2)


def test_the_personal_model_learns_at_its_own_rate(tiny):
    slow, fast = (run_parts(f"pfedme(rate={rate}, lam=1)", tiny, rounds=1) for rate in (0.01, 0.1))
    assert not torch.equal(slow.state(0), fast.state(0))


def test_its_rate_follows_the_runs_decay():
    given = {"rounds": 2, "epochs": 1, "lr": 0.2}
    decayed = run_parts("pfedme(lam=2, rate=0.1, steps=1)", federation(), lr_decay=0.5, **given)
    w, c, o = [0.0], 1.0, 1.0
    for round in range(2):
        ends = []
        for c, o in CLIENTS:
            theta = w[-1] - 0.1 * 0.5**round * c * (w[-1] - o)
            ends.append(w[-1] - 0.2 * 0.5**round * 2 * (w[-1] - theta))
        w.append(sum(ends) / 2)
    assert decayed.vector.item() == pytest.approx(w[-1], abs=1e-6)


@pytest.mark.parametrize("other", ["fedlc", "flood(T=1)", "scaffold", "fedprox"])
def test_no_other_part_vanishes_beside_it(tiny, other):
    alone, both = run_parts("pfedme(lam=2)", tiny), run_parts(f"{other}+pfedme(lam=2)@uniform", tiny)
    assert not torch.equal(alone.vector, both.vector)


def test_it_trains_once_more_per_inner_step():
    from undrift.bench.costs import count

    assert count("pfedme(steps=3)").training == 4 * count("fedavg").training


def test_steps_that_jump_over_each_other_are_warned_about(tiny):
    run = run_parts("pfedme(lam=30, rate=0.1)", tiny, rounds=1)
    assert "rate · lam = 3" in " ".join(run.setup.notices)


def test_bad_values_are_refused():
    with pytest.raises(BadRequest, match="pfedme: steps"):
        personalize.pfedme(steps=0)
