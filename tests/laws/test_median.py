"""Laws of the coordinate median."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.core.errors import BadRequest
from undrift.methods import combine
from undrift.methods.combine.median import middle
from undrift.testing import run_parts, small_network


def test_the_middle_of_odd_and_even_numbers():
    assert middle(torch.tensor([[3.0], [1.0], [2.0]])).item() == 2
    assert middle(torch.tensor([[3.0], [1.0], [2.0], [100.0]])).item() == 2.5


@settings(max_examples=100, deadline=None, derandomize=True)
@given(honest=st.lists(st.floats(-10, 10), min_size=3, max_size=9),
       lies=st.lists(st.floats(-1e30, 1e30), min_size=0, max_size=8), seed=st.integers(0, 99))  # fmt: skip
def test_a_minority_of_liars_cannot_leave_the_range_of_the_honest(honest, lies, seed):
    lies = lies[: len(honest) - 1]
    points = torch.tensor([*honest, *lies], dtype=torch.float64)[:, None]
    points = points[torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))]
    assert min(honest) <= middle(points).item() <= max(honest)


def test_updates_are_taken_relative_to_what_was_sent(server, replies, planned):
    plan = planned()
    n = plan.layout.n
    sent = [torch.full((n,), float(k)) for k in range(3)]
    vectors = [sent[k] + change for k, change in enumerate((1.0, 5.0, 2.0))]
    window = server(plan=plan, vector=torch.full((n,), 10.0))
    out = combine.median().combine(window, replies(3, vectors=vectors, sent=sent), [1 / 3] * 3)
    assert out.unique().tolist() == [12.0]


def test_equal_clients_give_that_client_bit_for_bit(server, replies, planned):
    plan = planned()
    old, new = (torch.randn(plan.layout.n, generator=torch.Generator().manual_seed(k)) for k in range(2))
    cohort = replies(5, vectors=[new] * 5, sent=[old] * 5)
    out = combine.median().combine(server(plan=plan, vector=old), cohort, [0.2] * 5)
    assert torch.equal(out, new)


@pytest.mark.parametrize("rule", ["median", "geomedian", "trimmed(share=0.3)"])
def test_a_round_with_too_few_replies_is_skipped(rule, tiny):
    """The mean instead would give a liar what the rule denies it."""
    run = run_parts(rule, tiny, lose={(0, 0), (0, 1)}, rounds=1)
    assert torch.equal(run.vector, run.setup.runtime.initial)
    least = 4 if rule.startswith("trimmed") else 3
    assert [event for event in run.events if event[2] == "skipped"] == [
        (0, None, "skipped", f"{rule.partition('(')[0]} needs {least} clients and has 2; the model stays as it is")
    ]


def test_too_few_clients_and_weights_are_refused(tiny):
    with pytest.raises(BadRequest, match="at least 3"):
        run_parts("median", tiny, cohort=2)
    with pytest.raises(BadRequest, match="ignores weights"):
        run_parts("median@bound", tiny)


def test_running_variances_stay_positive(tiny):
    run = run_parts("median", tiny, model=lambda: small_network(5, 3, norm=True))
    assert (run.setup.plan.layout.part(run.vector, "1.running_var") >= 0).all()
