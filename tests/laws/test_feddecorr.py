"""Laws of FedDecorr."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import objectives
from undrift.testing import run_parts


def term(batch, job, f, **fields):
    return objectives.feddecorr(beta=1.0, **fields).loss(batch(torch.zeros(len(f), 3), features=f), job(), None)


@pytest.mark.parametrize("shape", [(9, 4), (5, 12)])
def test_it_is_the_mean_squared_off_diagonal_of_the_standardised_gram_matrix(batch, job, shape):
    f = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    Z = (f - f.mean(0)) / f.std(0)
    K = Z.T @ Z
    expected = K[~torch.eye(shape[1], dtype=torch.bool)].square().mean() / shape[0]
    assert term(batch, job, f).item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_released_scale_is_62_times_the_papers_at_64_samples(batch, job):
    # (B − 1)²/B at B = 64: 63²/64 = 62.015625
    f = torch.randn(64, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert (term(batch, job, f) / term(batch, job, f, normalise=True)).item() == pytest.approx(62.015625)


def test_the_papers_scale_is_the_mean_squared_correlation(batch, job):
    f = torch.randn(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    correlation = torch.corrcoef(f.T)[0, 1].item()
    assert term(batch, job, f, normalise=True).item() == pytest.approx(correlation**2, rel=1e-5)


@pytest.mark.parametrize("shape", [(6, 3), (4, 7)])
def test_the_gradient_is_that_of_finite_differences(batch, job, shape):
    f = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: term(batch, job, x), f)


def test_tiny_batches_and_constant_dimensions_are_harmless(batch, job):
    assert all(term(batch, job, torch.randn(n, 4)) == 0 for n in (1, 2, 3))
    f = torch.ones(8, 4, requires_grad=True)
    term(batch, job, f).backward()
    assert torch.isfinite(f.grad).all()
    assert term(batch, job, torch.randn(8, 1)) < 1e-6


def test_beta_zero_is_plain_training_bit_for_bit(tiny):
    assert torch.equal(run_parts("feddecorr(beta=0)", tiny).vector, run_parts("fedavg", tiny).vector)


def test_it_lowers_the_correlation_of_features(tiny):
    def correlation(run):
        flat = run.setup.runtime.spare(0)
        flat.load(run.vector)
        flat.watch()
        flat(tiny.x)
        return torch.corrcoef(flat.features.T[flat.features.std(0) > 1e-3]).square().mean().item()

    with_term, without = (run_parts(name, tiny, rounds=6) for name in ("feddecorr(beta=0.3)", "fedavg"))
    assert correlation(with_term) < correlation(without)


def test_bad_values_are_refused():
    with pytest.raises(BadRequest, match="feddecorr"):
        objectives.feddecorr(beta=-0.1)
