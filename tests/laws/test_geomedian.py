"""Laws of the geometric median."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.core.errors import BadRequest
from undrift.methods import combine
from undrift.methods.combine.geomedian import weiszfeld
from undrift.testing import run_parts


def median_of(points, p=None, steps=100):
    points = torch.as_tensor(points, dtype=torch.float64)
    p = torch.ones(len(points), dtype=torch.float64) if p is None else torch.tensor(p, dtype=torch.float64)
    alpha = weiszfeld(torch.cdist(points, points) ** 2, p / p.sum(), 1e-6, steps)
    assert alpha.sum().item() == pytest.approx(1)
    return alpha @ points


def test_of_points_on_a_line_it_is_the_median():
    assert median_of([[0.0], [1.0], [100.0]], steps=1000).item() == pytest.approx(1, abs=1e-3)


def test_of_a_triangle_it_is_the_fermat_point():
    # equilateral: the centre
    corners = [[0.0, 0.0], [1.0, 0.0], [0.5, 3**0.5 / 2]]
    assert median_of(corners).tolist() == pytest.approx([0.5, 3**0.5 / 6], abs=1e-6)


def test_the_gradient_vanishes_at_the_result():
    points = torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z = median_of(points, steps=1000)
    away = z - points
    assert (away / away.norm(dim=1, keepdim=True)).sum(0).norm().item() < 1e-4


def test_weights_count():
    # a client with more than half of the weight is the median
    assert median_of([[0.0], [1.0], [2.0]], p=[1, 1, 5], steps=1000).item() == pytest.approx(2, abs=1e-3)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(f=st.integers(0, 3), seed=st.integers(0, 10**6), far=st.floats(10, 1e8))
def test_a_minority_of_liars_moves_it_by_a_bounded_amount(f, seed, far):
    # Breakdown ½: ‖z − c‖ ≤ 2(m−f)/(m−2f) · max distance of the honest from c, whatever f points do
    honest, draw = f + 3, torch.Generator().manual_seed(seed)
    good = torch.randn(honest, 4, dtype=torch.float64, generator=draw)
    lies = far * torch.randn(f, 4, dtype=torch.float64, generator=draw)
    z = median_of(torch.cat([good, lies]), steps=300)
    m = honest + f
    assert z.norm().item() <= 2 * (m - f) / (m - 2 * f) * good.norm(dim=1).max().item() + 1e-6


def test_equal_clients_give_that_client(server, replies, planned):
    plan = planned()
    old, new = (torch.randn(plan.layout.n, generator=torch.Generator().manual_seed(k)) for k in range(2))
    window = server(plan=plan, vector=old)
    out = combine.geomedian().combine(window, replies(4, vectors=[new] * 4, sent=[old] * 4), [0.25] * 4)
    assert torch.allclose(out, new, rtol=0, atol=1e-6)


def test_weights_are_allowed_and_too_few_clients_are_refused(tiny):
    assert torch.isfinite(run_parts("geomedian@bound", tiny).vector).all()
    with pytest.raises(BadRequest, match="at least 3"):
        run_parts("geomedian", tiny, cohort=2)
    with pytest.raises(BadRequest, match="geomedian"):
        combine.geomedian(nu=0)
