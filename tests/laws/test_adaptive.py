"""Laws of the adaptive server updates: three steps by hand, on one coordinate."""

from __future__ import annotations

import math

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import server as servers
from undrift.testing import run_parts, small_network

CHANGES = (1.0, -2.0, 0.001)


def by_hand(second, lr=0.1, beta1=0.9, tau=1e-3):
    theta, m, v = 0.5, 0.0, tau**2
    for change in CHANGES:
        m = beta1 * m + (1 - beta1) * change
        v = second(v, change**2)
        theta += lr * m / (math.sqrt(v) + tau)
    return theta


@pytest.mark.parametrize(
    ("part", "second"),
    [
        (servers.fedadagrad(lr=0.1), lambda v, d2: v + d2),
        (servers.fedadam(lr=0.1), lambda v, d2: 0.99 * v + 0.01 * d2),
        (servers.fedyogi(lr=0.1), lambda v, d2: v - 0.01 * d2 * math.copysign(1, v - d2)),
    ],
)
def test_three_steps_by_hand(part, second, server, replies, planned):
    plan = planned()
    window = server(plan=plan, vector=torch.full((plan.layout.n,), 0.5))
    window.memory = part.init_server(window)
    for change in CHANGES:
        window.vector = part.step(window, window.vector + change, replies(2))
    assert window.vector[0].item() == pytest.approx(by_hand(second), rel=1e-4)
    assert window.vector.unique().numel() == 1


def test_fedadam_has_no_bias_correction(server, replies, planned):
    # Δ = 1 twice: m = 0.1, 0.19 and v = 0.01, 0.0199, so the second step is η·0.19/0.14107 = 1.347η; torch's Adam: η
    plan, part = planned(), servers.fedadam(lr=1.0, tau=1e-9)
    window = server(plan=plan, vector=torch.zeros(plan.layout.n))
    window.memory = part.init_server(window)
    first = part.step(window, window.vector + 1, replies(2))
    second = part.step(window, window.vector + 1, replies(2))
    assert first[0].item() == pytest.approx(1.0, rel=1e-5)
    assert second[0].item() == pytest.approx(0.19 / 0.0199**0.5, rel=1e-5)


@pytest.mark.parametrize("name", ["fedadagrad", "fedadam", "fedyogi"])
def test_statistics_take_the_mean_and_variances_stay_positive(tiny, name):
    def network():
        return small_network(5, 3, norm=True)

    run, plain = (run_parts(what, tiny, rounds=1, model=network) for what in (f"{name}(lr=5)", "fedavg"))
    layout = run.setup.plan.layout
    assert torch.equal(run.vector[layout.nP :], plain.vector[layout.nP :])
    assert not torch.equal(run.vector[: layout.nP], plain.vector[: layout.nP])
    long = run_parts(f"{name}(lr=1)", tiny, rounds=6, model=network)
    assert (layout.part(long.vector, "1.running_var") >= 0).all()


def test_yogis_second_moment_never_turns_negative():
    v = torch.full((1000,), 1e-6)
    draw = torch.Generator().manual_seed(0)
    for _ in range(200):
        d2 = (torch.randn(1000, generator=draw) * 10 ** (torch.rand(1000, generator=draw) * 6 - 4)).square()
        v = v - 0.01 * d2 * (v - d2).sign()
        assert (v >= 0).all()


@pytest.mark.parametrize("values", [{"lr": 0}, {"beta1": 1.0}, {"beta2": -0.1}, {"tau": 0}])
def test_bad_values_are_refused(values):
    with pytest.raises(BadRequest, match="fedadam"):
        servers.fedadam(**values)
