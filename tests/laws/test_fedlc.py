"""Laws of FedLC."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from undrift import testing
from undrift.core.errors import BadRequest
from undrift.methods import objectives
from undrift.testing import run_parts


def test_offsets_by_hand(job, batch):
    # 16^(−1/4) = 1/2, 81^(−1/4) = 1/3, and an absent class counts as 1e-8: 100
    client = job(counts=torch.tensor([16, 81, 0]))
    part = objectives.fedlc(tau=2.0)
    z = torch.zeros(4, 3)
    shifted = part.logits(z, batch(z), client, part.before_training(client, None, {}))
    assert torch.allclose(shifted, torch.tensor([-1.0, -2 / 3, -200.0]).expand(4, 3))


def test_outputs_beyond_the_classes_count_as_absent(job, batch):
    client = job(counts=torch.tensor([16, 81]))
    part = objectives.fedlc()
    z = torch.zeros(2, 4)
    shifted = part.logits(z, batch(z), client, part.before_training(client, None, {}))
    assert torch.allclose(shifted[0], torch.tensor([-0.5, -1 / 3, -100.0, -100.0]))


@pytest.mark.parametrize("tau", [0.0, 0.01, 1.0])
def test_an_absent_class_can_be_masked_exactly_at_every_tau(job, batch, tau):
    # Classes 0 and 1 are there, class 2 and the spare output are not: they take no share and get no gradient.
    client, y = job(counts=torch.tensor([16, 81, 0])), torch.tensor([0, 1])
    part = objectives.fedlc(tau=tau, absent="mask")
    z = torch.tensor([[0.5, -1.0, 9.0, 9.0], [1.0, 2.0, 3.0, 30.0]], requires_grad=True)
    shifted = part.logits(z, batch(z), client, part.before_training(client, None, {}))
    two = z.detach()[:, :2] - tau * torch.tensor([1 / 2, 1 / 3])
    loss = F.cross_entropy(shifted, y)
    assert loss.item() == pytest.approx(F.cross_entropy(two, y).item(), rel=1e-6)
    (slope,) = torch.autograd.grad(loss, z)
    assert torch.equal(slope[:, 2:], torch.zeros(2, 2))
    counted = objectives.fedlc(tau=0.01)
    hardly = counted.logits(z, batch(z), client, counted.before_training(client, None, {}))
    assert hardly.softmax(1)[0, 2] > 0.4  # what the option is for: 1e-8 samples mask nothing at a small τ


def test_masking_leaves_a_client_with_one_class_where_it_is():
    alone = testing.tiny(clients=1, classes=3, seed=1)
    alone.y[:] = 0
    masked = run_parts("fedlc(tau=0.01, absent=mask)", alone, rounds=1)
    assert torch.equal(masked.vector, masked.setup.runtime.initial)


def test_gradient_by_finite_differences(job, batch):
    client, y = job(counts=torch.tensor([5, 1, 40])), torch.tensor([0, 1, 2, 2])
    part, draw = objectives.fedlc(), torch.Generator().manual_seed(0)
    z, way = (torch.randn(4, 3, generator=draw, dtype=torch.float64) for _ in range(2))
    offset = part.before_training(client, None, {}).double()

    def loss(z: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(part.logits(z, batch(z), client, offset), y)

    z.requires_grad_()
    (slope,) = torch.autograd.grad(loss(z), z)
    measured = (loss(z + 1e-5 * way) - loss(z - 1e-5 * way)) / 2e-5
    assert (slope * way).sum().item() == pytest.approx(measured.item(), rel=1e-6)


def test_tau_zero_is_fedavg_bit_for_bit(tiny):
    assert torch.equal(run_parts("fedlc(tau=0)", tiny).vector, run_parts("fedavg", tiny).vector)


def test_a_client_with_one_class_hardly_moves():
    alone = testing.tiny(clients=1, classes=3, seed=1)
    alone.y[:] = 0
    calibrated = run_parts("fedlc", alone, rounds=1)
    start = calibrated.setup.runtime.initial
    assert (calibrated.vector - start).norm() < 1e-6
    assert (run_parts("fedavg", alone, rounds=1).vector - start).norm() > 0.1


def test_the_recorded_loss_is_the_raw_one(tiny):
    # FedNolowe notes the loss it was given; at rate ~0 it must be the plain one, whatever the calibration.
    runs = [run_parts(m, tiny, rounds=1, lr=1e-9) for m in ("fednolowe", "fednolowe+fedlc")]
    plain, shifted = ([value for _, _, value in run.notes("loss")] for run in runs)
    assert shifted == pytest.approx(plain, abs=1e-5)


def test_a_bad_tau_is_refused():
    with pytest.raises(BadRequest, match="fedlc: tau must be at least 0, not -1"):
        objectives.fedlc(-1)
