"""Laws of InCo."""

from __future__ import annotations

import pytest
import torch

from undrift import models
from undrift.core.vector import Flat
from undrift.methods import combine
from undrift.methods.combine.inco import corrected, pairs
from undrift.testing import run_parts


def layout(name, size=16):
    return Flat(models.build(name, (3, size, size), 4, (), {}), torch.zeros(2, 3, size, size)).layout


def test_kernels_by_hand():
    # g₀ = 0.03 e₁, g = 0.04 e₂: orthogonal, θ = 0: g′ = e₂ · 0.035
    g0, g = torch.zeros(1, 9), torch.zeros(1, 9)
    g0[0, 0], g[0, 1] = 0.03, 0.04
    assert corrected(g0, g)[0, :2].tolist() == pytest.approx([0.0, 0.035], abs=1e-5)
    # g = −0.03 e₁: θ = |−0.0009|/0.0009 ≈ 1, g′ = (−1 + 1) · 0.03 = 0: the sign is lost, as in the authors' code
    assert corrected(g0, -g0)[0, 0].item() == pytest.approx(0.0, abs=1e-5)
    # θ is capped at 5: g = 0.3 e₁ has θ = 10: (1 + 5)·0.165 = 0.99, clamped to 0.1
    assert corrected(g0, 10 * g0)[0, 0].item() == pytest.approx(0.1)
    assert torch.isfinite(corrected(torch.zeros(2, 9), torch.zeros(2, 9))).all()


def test_stages_of_resnet20_are_found_by_shape_and_block():
    matched = [(a.name, b.name) for a, b in pairs(layout("resnet20"))]
    assert len(matched) == 3 * 2 * 2  # three stages, two later blocks, two convolutions each
    assert matched[0] == ("stage1.0.body.3.weight", "stage1.1.body.0.weight")
    assert {a for a, _ in matched} == {f"stage{k}.0.body.3.weight" for k in (1, 2, 3)}


def test_bottlenecks_pair_their_single_3x3():
    matched = pairs(layout("resnet50", 32))
    assert len(matched) == 2 + 3 + 5 + 2


@pytest.mark.parametrize("name", ["resnet8", "cnn", "vgg9"])
def test_networks_without_repeated_blocks_have_nothing_to_correct_and_warn(name, planned):
    plan = planned(layout=layout(name))
    assert pairs(plan.layout) == []
    (problem,) = combine.inco().check(plan)
    assert problem.level == "warning"
    assert "uniform averaging" in problem.sentence


def test_without_repeated_stages_it_is_uniform_fedavg_bit_for_bit(tiny):
    assert torch.equal(run_parts("inco", tiny).vector, run_parts("fedavg-uniform", tiny).vector)


def test_only_the_deep_convolutions_differ_from_the_mean(server, replies, planned):
    plan = planned(layout=layout("resnet20"))
    draw = torch.Generator().manual_seed(0)
    old = torch.randn(plan.layout.n, generator=draw)
    vectors = [old + 0.01 * torch.randn(len(old), generator=draw) for _ in range(3)]
    window = server(plan=plan, vector=old)
    out = combine.inco().combine(window, replies(3, vectors=vectors, sent=[old] * 3), [1 / 3] * 3)
    mean = sum(v.double() for v in vectors).div(3).float()
    corrected_places = plan.layout.mask(deep.name for _, deep in pairs(plan.layout))
    assert torch.allclose(out[~corrected_places], mean[~corrected_places], rtol=0, atol=1e-6)
    assert (out[corrected_places] != mean[corrected_places]).float().mean() > 0.99
    assert ((out - old)[corrected_places].abs() <= 0.1 + 1e-6).all()
