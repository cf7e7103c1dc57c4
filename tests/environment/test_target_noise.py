"""Noise on targets that are no classes: numbers and tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.samples import Ragged
from undrift.federation.environment import noise

STREAM = np.random.default_rng


def test_gaussian_has_the_deviation_that_was_asked_for_in_units_of_the_targets():
    y = torch.linspace(-50, 50, 20_000)
    away = noise.gaussian(0.5).apply(y, None, 1, STREAM(0)) - y
    assert away.std().item() == pytest.approx(0.5 * y.std().item(), rel=0.02)
    assert away.mean().abs() < 0.3
    assert torch.equal(noise.gaussian(0.0).apply(y, None, 1, STREAM(0)), y)
    some = noise.gaussian(1.0, rate=0.25).apply(y, None, 1, STREAM(0))
    assert int((some != y).sum()) == 5000
    both = torch.stack([y, 100 * y], dim=1)  # every target has a deviation of its own
    away = noise.gaussian(0.1).apply(both, None, 2, STREAM(0)) - both
    assert (away.std(0) / both.std(0)).tolist() == pytest.approx([0.1, 0.1], rel=0.05)


def test_whole_clients_can_be_noisy_and_test_targets_stay_clean():
    federation = ud.federate("diabetes", "iid", 10, noise="gaussian(1.0, rate=0.3, unit=client)")
    changed = [bool((federation.y[rows] != federation.clean_y[rows]).any()) for rows in federation.shards]
    assert sum(changed) == 3
    assert torch.equal(federation.test_y, ud.federate("diabetes", "iid", 10).test_y)


@pytest.mark.parametrize("kind", ["sequences", "tensor"])
def test_exactly_a_share_of_the_tokens_becomes_another_token(kind):
    lengths = [5, 3, 8, 4] * 50
    tokens = [
        torch.randint(0, 7, (length,), generator=torch.Generator().manual_seed(i)) for i, length in enumerate(lengths)
    ]
    ragged = Ragged(tokens, pad=-1)
    given = ragged if kind == "sequences" else ragged.padded()
    noisy = noise.replace_tokens(0.2).apply(given, None, 7, STREAM(0))
    before, after = (one.padded() if kind == "sequences" else one for one in (given, noisy))
    assert int((before != after).sum()) == 200  # of 1,000
    assert torch.equal(before == -1, after == -1)  # padding stays
    assert after.max() <= 6
    assert after[before >= 0].min() >= 0
    same = noise.replace_tokens(0.0).apply(given, None, 7, STREAM(0))
    assert torch.equal(same.padded() if kind == "sequences" else same, before)


def test_tokens_of_whole_clients():
    ragged = Ragged([torch.zeros(4, dtype=torch.long)] * 6, pad=-1)
    shards = [np.array([0, 1]), np.array([2, 3]), np.array([4, 5])]
    noisy = noise.replace_tokens(0.34, unit="client").apply(ragged, shards, 5, STREAM(0)).padded()
    wrong = (noisy != 0).all(1).view(3, 2)
    assert sorted(wrong.all(1).tolist()) == [False, False, True]
    assert int((noisy != 0).sum()) == 8


def test_noise_before_the_partition_leaves_the_proxy_set_clean():
    federation = ud.federate("diabetes", "iid", 5, noise="gaussian(1.0, when=before)", proxy=0.2)
    changed = (federation.y != federation.clean_y).numpy()
    assert not changed[federation.proxy_rows].any()
    assert changed[np.concatenate(federation.shards)].all()
