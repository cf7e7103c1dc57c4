"""Laws of FedLAW."""

from __future__ import annotations

import copy
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from undrift.core.errors import BadRequest
from undrift.core.vector import Flat
from undrift.methods import combine
from undrift.methods.combine.fedlaw import Adam
from undrift.testing import run_parts, small_network


@pytest.fixture
def proxied(tiny):
    federation = copy.copy(tiny)
    federation.proxy_rows = np.arange(0, 126, 3)
    return federation


@pytest.mark.parametrize("form", ["exponential", "quadratic"])
def test_no_steps_give_size_weights(proxied, form):
    law, plain = run_parts(f"fedlaw(epochs=0, form={form})", proxied), run_parts("fedavg", proxied)
    assert torch.allclose(law.vector, plain.vector, rtol=0, atol=1e-6)
    if form == "exponential":
        assert torch.equal(law.vector, plain.vector)


@pytest.mark.parametrize("form", ["exponential", "quadratic"])
def test_from_uniform_no_steps_give_equal_weights(proxied, form):
    law = run_parts(f"fedlaw(epochs=0, form={form}, start=uniform)", proxied)
    assert torch.allclose(law.vector, run_parts("fedavg-uniform", proxied).vector, rtol=0, atol=1e-6)
    # x = √(1/m) and g = 1 for the quadratic form, as the authors have it
    free, g = combine.fedlaw(form="quadratic", start="uniform").initial(torch.tensor([1.0, 2.0, 3.0, 10.0]))
    assert (free.tolist(), g.item()) == ([0.5] * 4, 1.0)


@pytest.mark.parametrize("form", ["exponential", "quadratic"])
def test_it_lowers_the_proxy_loss_and_notes_its_weights(proxied, form):
    run = run_parts(f"fedlaw(form={form}, lr=0.05)", proxied, rounds=1)
    plain = run_parts("fedavg", proxied, rounds=1)
    x, y = proxied.proxy()

    def loss(vector):
        flat = run.setup.runtime.lent(vector)
        with torch.no_grad():
            return F.cross_entropy(flat(x), y).item()

    assert loss(run.vector) < loss(plain.vector)
    shares = [value for _, client, value in run.notes("weight") if client is not None][-4:]
    assert sum(shares) == pytest.approx(1)
    ((_, _, gamma),) = run.notes("gamma")
    assert 0.5 - 1e-9 <= gamma <= 1.5 + 1e-9
    ((_, _, losses),) = run.notes("proxy_loss")
    assert losses[-1] < losses[0]


def test_its_adam_is_adam():
    ours, theirs = (torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True) for _ in range(2))
    mine, reference = Adam([ours]), torch.optim.Adam([theirs], lr=0.1, betas=(0.5, 0.999))
    for _ in range(5):
        for number in (ours, theirs):
            number.grad = None
            (number**4).sum().backward()
        mine.step(0.1)
        reference.step()
    assert torch.allclose(ours, theirs, rtol=1e-9)


@pytest.mark.parametrize("form", ["exponential", "quadratic"])
def test_the_slopes_are_those_of_finite_differences(server, replies, planned, form, monkeypatch):
    """`Recorder` replaces Adam and records the gradients it receives."""
    draw = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    flat = Flat(small_network(5, 3), torch.zeros(2, 5))
    vectors = [torch.randn(flat.layout.n, generator=draw) for _ in range(3)]
    x, y = torch.randn(12, 5, generator=draw), torch.randint(3, (12,), generator=draw)
    part = combine.fedlaw(epochs=1, form=form, batch=12)
    gradients = []
    monkeypatch.setattr(
        sys.modules["undrift.methods.combine.fedlaw"], "Adam", lambda numbers: Recorder(numbers, gradients)
    )

    def model(vector):
        flat.load(vector)
        return flat

    window = server(plan=planned(layout=flat.layout), vector=vectors[0], proxy=(x, y), model=model)
    part.combine(window, replies(3, n=[1, 2, 3], vectors=vectors, sent=vectors), [1 / 3] * 3)
    n = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def value(free, g):
        share, gamma = part.mixture(free, g, n)
        mixed = sum(s * v.double() for s, v in zip(share, vectors)) * gamma
        own = {e.name: mixed[e.place].view(e.shape) for e in flat.layout.entries}
        return F.cross_entropy(torch.func.functional_call(flat.module.double(), own, x.double()), y).item()

    free, g = part.initial(n)
    for i in range(3):
        e = torch.zeros(3, dtype=torch.float64)
        e[i] = 1e-6
        slope = (value(free + e, g) - value(free - e, g)) / 2e-6
        assert gradients[0][0][i].item() == pytest.approx(slope, rel=1e-3, abs=1e-5)
    assert gradients[0][1].item() == pytest.approx((value(free, g + 1e-6) - value(free, g - 1e-6)) / 2e-6, rel=1e-3)


class Recorder:
    def __init__(self, numbers, gradients):
        self.numbers, self.gradients = numbers, gradients

    def step(self, lr):
        self.gradients.append([number.grad.clone() for number in self.numbers])


def test_statistics_are_estimated_again_on_the_proxy_set(proxied):
    def network():
        return small_network(5, 3, norm=True)

    run = run_parts("fedlaw(epochs=2, batch=1000)", proxied, rounds=1, model=network)
    layout = run.setup.plan.layout
    x, _ = proxied.proxy()
    hidden = x @ layout.part(run.vector, "0.weight").T + layout.part(run.vector, "0.bias")
    assert torch.allclose(layout.part(run.vector, "1.running_mean"), hidden.mean(0), atol=1e-5)
    assert torch.allclose(layout.part(run.vector, "1.running_var"), hidden.var(0), atol=1e-4)
    assert run.setup.runtime.spare(1).module[1].momentum == 0.1


def test_one_client_has_only_its_shrinking_factor(proxied):
    run = run_parts("fedlaw(epochs=3)", proxied, rounds=1, selection="list([1])", cohort=None)
    assert [value for _, _, value in run.notes("weight")][-1] == 1.0


def test_a_missing_proxy_set_weights_and_bad_values_are_refused(tiny, proxied):
    with pytest.raises(BadRequest, match="fedlaw needs a proxy set"):
        run_parts("fedlaw", tiny)
    with pytest.raises(BadRequest, match="ignores weights"):
        run_parts("fedlaw@bound", proxied)
    for values in ({"epochs": -1}, {"lr": 0}, {"batch": 0}, {"form": "cubic"}):
        with pytest.raises(BadRequest, match="fedlaw"):
            combine.fedlaw(**values)
