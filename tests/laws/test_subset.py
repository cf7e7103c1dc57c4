"""Laws of the subset by loss."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import sampling
from undrift.testing import run_parts


def picked(job, losses, **fields):
    part = sampling.subset(**fields)
    client = job(n=len(losses), scored=lambda role: SimpleNamespace(loss=torch.tensor(losses)))
    return sorted(part.epoch_indices(client, part.before_training(client, None, {}), 0).tolist())


def test_low_and_high_halves_split_the_samples(job):
    losses = [0.5, 0.1, 9.0, 0.2]
    assert picked(job, losses, which="low") == [1, 3]
    assert picked(job, losses, which="high") == [0, 2]
    assert picked(job, losses, share=1.0) == [0, 1, 2, 3]
    assert picked(job, losses, share=0.01) == [1]


def test_a_random_half_has_as_many_samples_and_another_choice_in_another_round(tiny):
    run = run_parts("subset(random, 0.5)", tiny, rounds=2)
    assert [value for _, _, value in run.notes("picked")] == 2 * [12, 14, 17, 19]


def test_a_loss_that_is_not_finite_is_the_largest(job):
    assert picked(job, [0.5, float("nan"), 0.1, 0.3], which="low", share=0.75) == [0, 2, 3]


def test_the_share_of_every_client_is_rounded_down(tiny):
    counts = [value for _, _, value in run_parts("subset(high, 0.5)", tiny, rounds=1).notes("picked")]
    assert counts == [12, 14, 17, 19]  # ⌊n/2⌋ of 24, 29, 34, 39


@pytest.mark.parametrize("values", [{"which": "middle"}, {"share": 0}, {"share": 1.1}])
def test_bad_values_are_refused(values):
    with pytest.raises(BadRequest, match="subset"):
        sampling.subset(**values)
