"""Laws of DP-SGD: per-sample gradients, the bound on one sample, the noise, Poisson batches, and every client's own ε."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from scipy import stats

import undrift as ud
from undrift.contract.context import Batch
from undrift.core.errors import BadRequest
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.methods.upload.accountant import Mechanism, epsilon
from undrift.round.sample_gradients import SampleGradients
from undrift.testing import QUICK, run_parts, small_network, tiny

CLIENTS = tiny()


def runtime_of(model=None):
    options = {**QUICK, "model": model or CLIENTS.model, "method": "fedavg"}
    return prepare(from_keywords(options), CLIENTS).runtime


def test_the_mean_of_sample_gradients_is_the_gradient_of_the_mean():
    runtime = runtime_of()
    x, y = runtime.train(0)
    rows = SampleGradients(runtime)(Batch(x, y, torch.arange(len(y)), runtime.model.P, 0))
    whole = torch.empty_like(runtime.model.P)
    runtime.model.gradient(runtime.loss(runtime.model(x), y).mean(), into=whole)
    assert torch.allclose(rows.mean(0), whole, atol=1e-6)


class Odd(torch.nn.Module):
    """A network that torch.func does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * (1.0 if float(x.sum().item()) < 1e9 else 2.0)


def test_a_network_that_cannot_be_batched_runs_sample_by_sample():
    runtime = runtime_of(Odd)
    x, y = runtime.train(0)
    sampled = SampleGradients(runtime)
    rows = sampled(Batch(x, y, torch.arange(len(y)), runtime.model.P, 0))
    assert not sampled.together
    whole = torch.empty_like(runtime.model.P)
    runtime.model.gradient(runtime.loss(runtime.model(x), y).mean(), into=whole)
    assert torch.allclose(rows.mean(0), whole, atol=1e-6)


def stepped(part, rows: torch.Tensor, batch: int = 4, seed: int = 0) -> torch.Tensor:
    """The gradient that the part makes of given sample gradients."""
    plan = SimpleNamespace(secret=False, batch=batch)
    G = torch.full((rows.shape[1],), 7.0)
    index = torch.arange(max(1, len(rows)))
    one = SimpleNamespace(sample_gradients=lambda: rows if len(rows) else torch.ones(1, rows.shape[1]), index=index)
    scratch = {"noise": torch.Generator().manual_seed(seed), "nobody": [] if len(rows) else [index]}
    part.gradient(None, G, one, SimpleNamespace(plan=plan), scratch)
    return G


def test_a_sample_counts_at_most_its_clipped_gradient_over_the_expected_batch():
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4]])  # lengths 5 and 0.5
    assert stepped(ud.sampling.dpsgd(noise=0, clip=1), rows).tolist() == pytest.approx(
        [(0.6 + 0.3) / 4, (0.8 + 0.4) / 4]
    )
    loud = torch.tensor([[3e12, 4e12]])
    assert float(stepped(ud.sampling.dpsgd(noise=0, clip=1), loud).norm()) == pytest.approx(1 / 4, rel=1e-5)


@pytest.mark.parametrize("samples", [0, 3])
def test_the_noise_does_not_depend_on_how_many_samples_came(samples):
    part = ud.sampling.dpsgd(noise=2.0, clip=0.5)
    drawn = stepped(part, torch.zeros(samples, 20_000)).double().numpy()
    assert stats.kstest(drawn / (2.0 * 0.5 / 4), "norm").pvalue > 1e-4


def test_batches_are_poisson():
    job = SimpleNamespace(n=200, plan=SimpleNamespace(batch=10, secret=False))
    scratch = {"batches": torch.Generator().manual_seed(3), "nobody": []}
    part = ud.sampling.dpsgd()
    sizes = [len(b) for epoch in range(40) for b in part.batch_indices(job, scratch, epoch)]
    assert len(sizes) == 40 * 20
    assert sum(sizes) / len(sizes) == pytest.approx(10, abs=0.5)
    assert float(torch.tensor(sizes, dtype=torch.float64).var()) == pytest.approx(10 * 0.95, rel=0.2)


def test_a_clients_epsilon_counts_its_own_steps_and_samples_over_all_rounds():
    run = run_parts("fedavg+dpsgd(noise=1.0)", CLIENTS, rounds=3, epochs=2, batch=8, evaluate_every=9)
    found = {(round, client): value for round, client, value in run.notes("sample_epsilon")}
    for client, n in enumerate((24, 29, 34, 39)):
        steps = 2 * max(1, round(n / 8))
        for done in (0, 2):
            expected = epsilon(Mechanism(1.0, "poisson", 8, n), 1e-5, steps * (done + 1))
            assert found[done, client] == pytest.approx(expected)


def test_without_noise_and_bound_and_with_whole_batches_it_is_plain_training():
    # Every sample is in every batch (q = 1), so a step is a step on all data.
    settings = {"rounds": 3, "epochs": 2, "batch": 24, "evaluate_every": 9, "selection": "list([0])", "cohort": None}
    private = run_parts("fedavg+dpsgd(noise=0, clip=1e9)", CLIENTS, **settings)
    plain = run_parts("fedavg", CLIENTS, **settings)
    assert torch.allclose(private.vector, plain.vector, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("fedlc+dpsgd", "uses the samples in logits"),
        ("flood+dpsgd", "uses the samples in sample_weights"),
        ("feddecorr+dpsgd", "uses the samples in loss"),
        ("fedsam+dpsgd", "second gradient"),
        ("fedavg+dpsgd(noise=-1)", "noise must be"),
        ("fedavg+dpsgd(clip=0)", "clip must be"),
        ("fedbss+dpsgd", "both pick the samples"),
    ],
)
def test_what_goes_round_the_noise_is_refused(method, words):
    with pytest.raises(BadRequest, match=words):
        run_parts(method, CLIENTS, rounds=1)


def test_batchnorm_is_refused_by_name():
    with pytest.raises(BadRequest, match="norm=group"):
        run_parts("fedavg+dpsgd", CLIENTS, rounds=1, model=lambda: small_network(5, 3, norm=True))


def test_without_the_extra_it_is_refused_before_round_0(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(BadRequest, match=r"undrift\[privacy\]"):
        prepare(from_keywords({**QUICK, "model": CLIENTS.model, "method": "fedavg", "sampling": "dpsgd"}), CLIENTS)
