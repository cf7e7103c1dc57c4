"""Laws of Krum and multi-Krum."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.core.errors import BadRequest
from undrift.methods import combine
from undrift.methods.combine._points import distances
from undrift.methods.combine.krum import ranked
from undrift.testing import run_parts


def cohort(server, replies, plan, points):
    zero = torch.zeros(plan.layout.n)
    vectors = []
    for point in points:
        vector = zero.clone()
        vector[: len(point)] = torch.as_tensor(point, dtype=torch.float32)
        vectors.append(vector)
    return server(plan=plan, vector=zero), replies(len(points), vectors=vectors, sent=[zero] * len(points))


def test_scores_by_hand(server, replies, planned):
    # points 0, 1, 3, 10, 11 on a line, f = 1: each with its m − f − 2 = 2 nearest
    # 0: 1 + 9, 1: 1 + 4, 3: 4 + 9, 10: 1 + 49, 11: 1 + 64; the best is 1, then 0, 3, 10, 11
    window, answers = cohort(server, replies, planned(), [[0.0], [1.0], [3.0], [10.0], [11.0]])
    assert ranked(distances(window, answers), 1) == [1, 0, 2, 3, 4]
    assert combine.krum(1).combine(window, answers, [0.2] * 5)[0].item() == 1
    # multi-Krum: the mean of the m − f = 4 best, (0 + 1 + 3 + 10)/4
    assert combine.krum(1, multi=True).combine(window, answers, [0.2] * 5)[0].item() == pytest.approx(3.5)


def test_distances_stay_exact_beside_a_far_outlier(server, replies, planned):
    window, answers = cohort(server, replies, planned(), [[0.0, 0.0], [3.0, 4.0], [1.0, 0.0], [3e30, 0.0]])
    square = distances(window, answers)
    assert square[0, 1].item() == pytest.approx(25)
    assert square[0, 2].item() == pytest.approx(1)
    assert square[0, 3].item() == pytest.approx(9e60, rel=1e-6)
    assert torch.equal(square, square.T)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(f=st.integers(1, 3), extra=st.integers(0, 3), seed=st.integers(0, 10**6), far=st.floats(100, 1e20))
def test_liars_far_away_are_never_chosen(f, extra, seed, far):
    m = 2 * f + 3 + extra
    draw = torch.Generator().manual_seed(seed)
    points = torch.randn(m, 4, dtype=torch.float64, generator=draw)
    points[:f] = far * (1 + torch.rand(f, 4, dtype=torch.float64, generator=draw))
    square = torch.cdist(points, points) ** 2
    best = ranked(square, f)
    assert best[0] >= f
    if f == 1:
        assert 0 not in best[: m - f]


def test_the_chosen_client_is_noted_and_taken_bit_for_bit(tiny):
    run = run_parts("krum(f=0)", tiny, rounds=1)
    shares = [value for _, _, value in run.notes("weight")][-4:]
    assert sorted(shares) == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("rule", ["krum(f=0)", "multikrum(f=0)"])
def test_a_round_with_too_few_replies_is_skipped(rule, tiny):
    """The mean instead would give a liar what the rule denies it."""
    run = run_parts(rule, tiny, lose={(0, 0), (0, 1)}, rounds=1)
    assert torch.equal(run.vector, run.setup.runtime.initial)
    assert [event for event in run.events if event[2] == "skipped"] == [
        (0, None, "skipped", "krum needs 3 clients and has 2; the model stays as it is")
    ]


def test_too_few_clients_and_bad_values_are_refused(tiny):
    with pytest.raises(BadRequest, match=r"2f \+ 3 = 5"):
        run_parts("krum", tiny)
    with pytest.raises(BadRequest, match="krum: f"):
        combine.krum(f=-1)
