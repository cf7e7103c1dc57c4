"""Laws of MOON."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from undrift.contract.client_data import ClientData
from undrift.contract.job import Job
from undrift.core.errors import BadRequest
from undrift.methods import objectives
from undrift.methods.objectives.moon import contrast
from undrift.testing import run_parts, small_network


def test_the_contrast_by_hand():
    # f at cosine 1 to near and 0 to far, τ = 0.5: −log(e²/(e² + 1)) = log(1 + e^(−2))
    f, near, far = torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    assert contrast(f, near, far, 0.5).item() == pytest.approx(math.log(1 + math.exp(-2)), abs=1e-6)
    assert contrast(f, near, near, 0.5).item() == pytest.approx(math.log(2), abs=1e-6)


def test_the_gradient_is_that_of_finite_differences(job, batch):
    draw = torch.Generator().manual_seed(0)
    f, near, far = (torch.randn(5, 4, dtype=torch.float64, generator=draw) for _ in range(3))
    scratch = {"near": lambda x: (None, near), "far": lambda x: (None, far), "own": None}
    part, client = objectives.moon(mu=0.7, tau=0.5), job()

    def term(features):
        return part.loss(batch(torch.zeros(5, 3), features=features), client, scratch)

    assert torch.autograd.gradcheck(term, f.requires_grad_())


def test_the_projection_heads_step_follows_finite_differences(job, batch, planned):
    draw = torch.Generator().manual_seed(1)
    part = objectives.moon(mu=0.7, head=True, width=3).resolve(planned())
    assert part.features == 8  # what enters the last layer of the tiny model
    f, near, far = (torch.randn(5, 8, dtype=torch.float64, generator=draw) for _ in range(3))
    own = torch.randn(part.size, dtype=torch.float64, generator=draw)
    scratch = {"near": lambda x: (None, near), "far": lambda x: (None, far), "own": own, "heads": (own, own)}

    def term(head):
        return 0.7 * contrast(part.project(head, f), part.project(own, near), part.project(own, far), 0.5).item()

    part.loss(batch(torch.zeros(5, 3), features=f.requires_grad_()), job(lr=0.1), scratch)
    step = (own - scratch["own"]) / 0.1
    for i in (0, 17, 64, 71, 72, part.size - 1):
        e = torch.zeros_like(own)
        e[i] = 1e-6
        assert step[i].item() == pytest.approx((term(own + e) - term(own - e)) / 2e-6, abs=1e-6)


def test_features_of_zeros_have_a_finite_gradient():
    f = torch.zeros(3, 4, requires_grad=True)
    contrast(f, torch.ones(3, 4), torch.zeros(3, 4), 0.5).backward()
    assert torch.isfinite(f.grad).all()


@pytest.mark.parametrize("head", ["false", "true"])
def test_mu_zero_is_plain_training_bit_for_bit(tiny, head):
    assert torch.equal(run_parts(f"moon(mu=0, head={head})", tiny).vector, run_parts("fedavg", tiny).vector)


def test_the_first_participation_refers_to_the_initial_model(tiny):
    run = run_parts("moon", tiny, rounds=2, selection="list([1])", cohort=None)
    part = run.setup.method.on("objective")[0]
    state = part.init_client(SimpleNamespace(initial=run.setup.runtime.initial))
    assert torch.equal(state["model"], run.setup.runtime.initial)
    assert not torch.equal(run.state(1)["model"], run.setup.runtime.initial)


def test_the_first_round_has_the_received_model_on_both_sides(tiny):
    # θ⁰ is received and previous: the two cosines are always equal, so the term is ln 2 and has no gradient.
    moon, plain = run_parts("moon", tiny, rounds=1), run_parts("fedavg", tiny, rounds=1)
    assert torch.allclose(moon.vector, plain.vector, rtol=0, atol=1e-6)
    assert not torch.allclose(run_parts("moon", tiny).vector, run_parts("fedavg", tiny).vector, rtol=0, atol=1e-6)


def test_reference_networks_do_not_move_statistics_included(tiny):
    def network():
        return small_network(5, 3, norm=True)

    run = run_parts("moon", tiny, rounds=1, model=network)
    runtime = run.setup.runtime
    job = Job(ClientData(runtime, 1, 0, runtime.model.integers()), "objective.moon", runtime.initial)
    part = run.setup.method.on("objective")[0]
    scratch = part.before_training(job, part.init_client(job), {})
    before = [scratch[side].replica.flat.vector.clone() for side in ("near", "far")]
    for x, _ in job.batches("here"):
        scratch["near"](SimpleNamespace(x=x)), scratch["far"](SimpleNamespace(x=x))
    after = [scratch[side].replica.flat.vector for side in ("near", "far")]
    assert all(torch.equal(a, b) for a, b in zip(before, after))


def test_projection_heads_are_averaged_by_size(server, replies, planned):
    part = objectives.moon(head=True, width=2).resolve(planned())
    window = server()
    messages = [{"head": torch.zeros(part.size)}, {"head": torch.ones(part.size)}]
    part.receive(window, replies(2, n=[1, 3], client_messages=messages))
    assert window.memory.unique().tolist() == [0.75]


def test_a_model_without_features_is_refused(tiny):
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(5, 3)

        def forward(self, x):
            return self.layer(x).tanh()

    for name in ("moon", "feddecorr", "fedrs", "fednp"):
        with pytest.raises(BadRequest, match=f"{name} needs the features"):
            run_parts(name, tiny, model=Odd)


@pytest.mark.parametrize("values", [{"mu": -1}, {"tau": 0}, {"width": 0}])
def test_bad_values_are_refused(values):
    with pytest.raises(BadRequest, match="moon"):
        objectives.moon(**values)
