"""Laws of the trimmed mean."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.core.errors import BadRequest
from undrift.methods import combine
from undrift.methods.combine.trimmed import without_ends
from undrift.testing import run_parts


def combined(server, replies, plan, changes, share):
    zero = torch.zeros(plan.layout.n)
    vectors = [zero + change for change in changes]
    m = len(changes)
    cohort = replies(m, vectors=vectors, sent=[zero] * m)
    return combine.trimmed(share).combine(server(plan=plan, vector=zero), cohort, [1 / m] * m)


def test_the_extremes_are_removed_by_hand(server, replies, planned):
    # share 0.2 of 5: one at each end; (1 + 2 + 6)/3 = 3
    assert combined(server, replies, planned(), [6.0, 1.0, -9.0, 1e6, 2.0], 0.2)[0].item() == pytest.approx(3)
    # 0.4 of 5: the median
    assert combined(server, replies, planned(), [6.0, 1.0, -9.0, 1e6, 2.0], 0.4)[0].item() == 2
    assert combine.trimmed(0.29).cut(100) == 29  # although 0.29 · 100 is 28.999999999999996


def test_no_share_is_the_uniform_mean(server, replies, planned):
    assert combined(server, replies, planned(), [1.0, 2.0, 6.0], 0.0)[0].item() == pytest.approx(3)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(honest=st.lists(st.floats(-10, 10), min_size=3, max_size=9), f=st.integers(0, 3), lie=st.floats(-1e30, 1e30))
def test_as_many_liars_as_are_removed_cannot_leave_the_range_of_the_honest(honest, f, lie):
    m = len(honest) + f
    share = f / m
    if share >= 0.5:
        return
    assert combine.trimmed(share).cut(m) == f
    mean = without_ends(torch.tensor([*honest, *[lie] * f], dtype=torch.float64)[:, None], f).item()
    assert min(honest) - 1e-9 <= mean <= max(honest) + 1e-9


def test_bad_values_are_refused(tiny):
    for share in (-0.1, 0.5, 1.0):
        with pytest.raises(BadRequest, match=r"trimmed: share"):
            combine.trimmed(share)
    with pytest.raises(BadRequest, match="no client"):
        run_parts("trimmed(0.1)", tiny)
