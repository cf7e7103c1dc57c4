"""NIID-Bench's recipe sample by sample, and the repair if no draw is accepted."""

from __future__ import annotations

import time

import numpy as np
import pytest

import undrift.federation.partition as partition
from undrift.core.errors import BadRequest

# The counts depend on the class sizes alone, so MNIST's published class sizes suffice.
MNIST = np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
FASHION = np.repeat(np.arange(10), 6000)
CIFAR = np.repeat(np.arange(10), 5000)


def classes_held(shards, labels):
    return (partition.matrix(shards, labels, 10) > 0).sum(1)


def extremes(shards):
    sizes = shards.sizes
    return (sizes.max(), sizes.argmax(), sizes.min(), sizes.argmin())


def test_fednolowes_printed_partition_of_mnist():
    shards = partition.dirichlet(0.1, numpy_seed=42)(MNIST, 50, np.random.default_rng(0))
    held = classes_held(shards, MNIST)
    assert extremes(shards) == (3997, 41, 32, 48)
    assert np.flatnonzero(held == 1).tolist() == [1, 2, 38]
    assert np.flatnonzero(held == 9).tolist() == [10, 49]
    assert shards.record == {"draws": 1}


def test_a_continued_stream_gives_the_other_two_printed_partitions():
    stream, unused = np.random.RandomState(42), np.random.default_rng(0)
    partition.dirichlet(0.1, numpy_seed=stream)(MNIST, 50, unused)
    fashion = partition.dirichlet(0.2, numpy_seed=stream)(FASHION, 50, unused)
    cifar = partition.dirichlet(0.2, numpy_seed=stream)(CIFAR, 50, unused)
    assert extremes(fashion) == (2070, 11, 35, 18)
    assert np.flatnonzero(classes_held(fashion, FASHION) == 1).tolist() == [29]
    assert np.flatnonzero(classes_held(fashion, FASHION) == 9).tolist() == [6, 22, 30, 41, 47, 49]
    assert extremes(cifar) == (2436, 4, 149, 34)
    assert np.flatnonzero(classes_held(cifar, CIFAR) == 10).tolist() == [3, 49]
    assert classes_held(cifar, CIFAR).argmin() == 8


def test_numpy_seed_gives_the_samples_of_the_script():
    """The script in eight lines: the shuffled class is cut at the same points, so the index lists agree as sets."""
    labels = np.random.default_rng(1).integers(0, 3, 600)
    legacy = np.random.RandomState(5)
    lists = [[] for _ in range(4)]
    for c in range(3):
        indices = np.where(labels == c)[0]
        legacy.shuffle(indices)
        q = legacy.dirichlet(np.repeat(0.5, 4))
        q = np.array([share * (len(held) < 600 / 4) for share, held in zip(q, lists, strict=True)])
        cuts = (np.cumsum(q / q.sum()) * len(indices)).astype(int)[:-1]
        lists = [held + shard.tolist() for held, shard in zip(lists, np.split(indices, cuts), strict=True)]
    shards = partition.dirichlet(0.5, numpy_seed=5, least=1)(labels, 4, np.random.default_rng(0))
    assert shards.record == {"draws": 1}
    assert [sorted(shard) for shard in shards] == [sorted(held) for held in lists]


def test_a_thousand_clients_at_001_are_repaired_and_recorded_in_time():
    began = time.process_time()
    shards = partition.dirichlet(0.01)(FASHION, 1000, np.random.default_rng(0))
    assert time.process_time() - began < 5
    assert shards.record["draws"] == 1000
    assert shards.record["repaired"] > 100
    assert shards.sizes.min() == 10
    assert shards.sizes.sum() == len(np.unique(np.concatenate(shards))) == 60_000


def test_an_easy_draw_is_not_repaired():
    assert "repaired" not in partition.dirichlet(0.5)(FASHION, 20, np.random.default_rng(0)).record


def test_the_mask_caps_sizes():
    """A client with n/N samples gets nothing more, so no client exceeds n/N − 1 plus one whole class."""
    for seed in range(20):
        sizes = partition.dirichlet(0.05)(CIFAR, 50, np.random.default_rng(seed)).sizes
        assert sizes.max() < 50_000 / 50 + 5000
    free = [
        partition.dirichlet(0.05, balance=False)(CIFAR, 50, np.random.default_rng(s)).sizes.max() for s in range(20)
    ]
    assert max(free) > 6000


def test_least_times_clients_decides_what_is_possible():
    labels = np.random.default_rng(0).integers(0, 10, 1437)  # as many as digits has
    assert partition.dirichlet(0.3)(labels, 100, np.random.default_rng(0)).sizes.min() >= 10
    with pytest.raises(
        BadRequest, match=r"200 clients with at least 10 samples each need 2000 samples.*1437.*resample"
    ):
        partition.dirichlet(0.3)(labels, 200, np.random.default_rng(0))
    assert partition.dirichlet(0.3, least=1)(labels, 200, np.random.default_rng(0)).sizes.min() >= 1


def test_feddf_keeps_sizes_close():
    """CIFAR-10, 100 clients, β = 0.1: 258…825 where NIID-Bench has 13…2552."""
    for seed in range(5):
        sizes = partition.dirichlet(0.1, recipe="feddf")(CIFAR, 100, np.random.default_rng(seed)).sizes
        assert sizes.min() >= 250
        assert sizes.max() < 1000
        # every group of ten holds an equal share
        assert sizes.reshape(10, 10).sum(1).tolist() == [5000] * 10


def test_feddf_takes_a_number_of_clients_that_is_no_multiple_of_ten():
    shards = partition.dirichlet(0.5, recipe="feddf")(CIFAR, 23, np.random.default_rng(0))
    assert len(np.unique(np.concatenate(shards))) == 50_000
    assert shards.sizes[20:].sum() == pytest.approx(50_000 * 3 / 23, abs=1)


def test_small_beta_means_few_classes():
    few = classes_held(partition.dirichlet(0.05)(FASHION, 50, np.random.default_rng(0)), FASHION).mean()
    many = classes_held(partition.dirichlet(100.0)(FASHION, 50, np.random.default_rng(0)), FASHION).mean()
    assert few < 4 < many == 10
