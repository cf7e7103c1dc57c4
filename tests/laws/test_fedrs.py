"""Laws of FedRS."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.federation.federation import Federation
from undrift.methods import objectives
from undrift.testing import run_parts, tiny


def scaled(job, batch, counts, **fields):
    """The part's logits for features h under a head W h + b, as a function of (h, W, b)."""
    part = objectives.fedrs(**fields)
    client = job(counts=torch.tensor(counts))
    scratch = part.before_training(client, None, {})

    def logits(h, W, b):
        def head(f):
            return f @ W.T + b

        return part.logits(head(h), batch(head(h), features=h, head=head), client, scratch)

    return logits


def drawn():
    draw = torch.Generator().manual_seed(0)
    shapes = ((4, 5), (3, 5), (3,))
    return [torch.randn(*shape, dtype=torch.float64, generator=draw, requires_grad=True) for shape in shapes]


def test_scores_of_missing_classes_are_scaled_and_biases_are_not(job, batch):
    h, W, b = drawn()
    expected = h @ W.T * torch.tensor([1.0, 0.25, 1.0]) + b
    assert torch.allclose(scaled(job, batch, [3, 0, 9], alpha=0.25)(h, W, b), expected)


def test_the_soft_form_follows_the_label_histogram(job, batch):
    h, W, b = drawn()
    # α + (1−α) q/max q at α = 0.5 and counts 3, 0, 6: 0.75, 0.5, 1
    expected = h @ W.T * torch.tensor([0.75, 0.5, 1.0]) + b
    assert torch.allclose(scaled(job, batch, [3, 0, 6], soft=True)(h, W, b), expected)


def test_gradients_are_those_of_finite_differences_the_bias_included(job, batch):
    assert torch.autograd.gradcheck(scaled(job, batch, [3, 0, 6]), drawn())


def test_alpha_one_is_plain_training_bit_for_bit(tiny):
    assert torch.equal(run_parts("fedrs(alpha=1)", tiny).vector, run_parts("fedavg", tiny).vector)


def test_it_is_fedavg_if_every_client_has_every_class():
    iid = tiny()
    clients = [iid.train(k) for k in range(4)]
    shared = Federation.from_clients(
        [(x, torch.arange(len(x)) % 3, x[:2], torch.arange(2)) for x, _ in clients], name="iid", labels=["0", "1", "2"]
    )
    plain, restricted = (run_parts(name, shared, model=iid.model) for name in ("fedavg", "fedrs(alpha=0.1)"))
    assert torch.equal(plain.vector, restricted.vector)


def test_missing_classes_are_unlearned_less(tiny):
    # One client of one class: without FedRS its steps push the other classes' rows away. α = 0 leaves them.
    x = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    batchnorm_needs_two = Federation.from_clients([(x, torch.zeros(20, dtype=torch.long), x[:2], torch.zeros(2, dtype=torch.long))],
                                   name="single", labels=["0", "1", "2"])  # fmt: skip

    def moved(name):
        run = run_parts(name, batchnorm_needs_two, model=tiny.model, rounds=1)
        change = run.setup.plan.layout.part(run.vector - run.setup.runtime.initial, "2.weight")
        return change[1:].norm().item()

    assert moved("fedrs(alpha=0)") == 0 < moved("fedrs(alpha=0.5)") < moved("fedavg")


def test_bad_values_are_refused():
    with pytest.raises(BadRequest, match="fedrs"):
        objectives.fedrs(alpha=1.5)
