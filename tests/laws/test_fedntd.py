"""Laws of FedNTD."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import objectives
from undrift.methods.objectives.fedntd import not_true
from undrift.testing import run_parts, tiny


def term(part, ours, theirs, y, batch):
    return part.loss(batch(ours, y), None, lambda x: (theirs, None))


def test_without_beta_it_is_fedavg_bit_for_bit(tiny):
    assert torch.equal(run_parts("fedntd(beta=0)", tiny).vector, run_parts("fedavg", tiny).vector)


def test_the_term_by_hand(batch):
    # one sample of class 0; the others have q̃_g = (3/4, 1/4) and q̃ = (1/2, 1/2): KL = 3/4 ln 3/2 + 1/4 ln 1/2
    ours, theirs = torch.tensor([[9.0, 0.0, 0.0]]), torch.tensor([[-5.0, 3.0, 1.0]]).abs().log()
    expected = 0.75 * torch.tensor(1.5).log() + 0.25 * torch.tensor(0.5).log()
    value = term(objectives.fedntd(beta=2.0), ours, theirs, torch.tensor([0]), batch)
    assert value.item() == pytest.approx(2.0 * expected.item(), abs=1e-6)


def test_the_true_class_does_not_matter_to_the_term(batch):
    draw, y = torch.Generator().manual_seed(0), torch.tensor([0, 2, 1, 3])
    ours, theirs = (torch.randn(4, 5, generator=draw) for _ in range(2))
    before = term(objectives.fedntd(), ours, theirs, y, batch)
    ours[range(4), y], theirs[range(4), y] = 50.0, -50.0
    assert torch.equal(term(objectives.fedntd(), ours, theirs, y, batch), before)


def test_the_term_is_zero_and_flat_at_the_received_model(batch):
    z = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    value = term(objectives.fedntd(tau=3.0), z, z.detach(), torch.arange(6) % 4, batch)
    (slope,) = torch.autograd.grad(value, z)
    assert abs(value.item()) < 1e-6
    assert slope.abs().max() < 1e-6


def test_a_high_temperature_matches_logits_up_to_a_shift(batch):
    # τ² KL → Σ_c (d_c − mean d)² / (2 (C − 1)), d = z̃ − z̃_g
    draw, y = torch.Generator().manual_seed(2), torch.tensor([1, 0, 3])
    ours, theirs = (torch.randn(3, 5, generator=draw, dtype=torch.float64) for _ in range(2))
    d = not_true(ours, y) - not_true(theirs, y)
    limit = ((d - d.mean(1, keepdim=True)).square().sum(1) / (2 * 4)).mean()
    assert term(objectives.fedntd(tau=1000.0), ours, theirs, y, batch).item() == pytest.approx(limit.item(), rel=1e-2)


def test_two_classes_are_plain_training_and_the_run_says_so():
    federation = tiny(classes=2)
    run = run_parts("fedntd", federation)
    assert torch.equal(run.vector, run_parts("fedavg", federation).vector)
    assert "only one is not true" in " ".join(run.setup.notices)


def test_bad_values_are_refused():
    with pytest.raises(BadRequest, match="fedntd: tau"):
        objectives.fedntd(tau=0)
