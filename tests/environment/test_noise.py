"""Label noise: exact counts, the right classes, pure and seeded, and permutations for the test slices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import undrift.federation.partition as partition
from undrift.core.errors import BadRequest
from undrift.federation.environment import noise

LABELS = np.random.default_rng(0).integers(0, 10, 1000)
OWNERS = partition.dirichlet(0.3)(LABELS, 12, np.random.default_rng(1))


def stream(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.333, 1.0])
@pytest.mark.parametrize("owners", [None, OWNERS], ids=["whole", "clients"])
@pytest.mark.parametrize("kind", [noise.symmetric, noise.pair])
def test_exactly_the_share_changes(kind, owners, rate):
    before = LABELS.copy()
    noisy = kind(rate).apply(LABELS, owners, 10, stream())
    assert (noisy != LABELS).sum() == round(rate * 1000)
    assert np.array_equal(LABELS, before)
    assert noisy.dtype == np.int64
    assert np.array_equal(noisy, kind(rate).apply(LABELS, owners, 10, stream()))
    if 0 < rate < 1:
        assert not np.array_equal(noisy, kind(rate).apply(LABELS, owners, 10, stream(1)))


def test_all_clients_are_equally_noisy_after_the_partition():
    changed = noise.symmetric(0.2).apply(LABELS, OWNERS, 10, stream()) != LABELS
    for part in OWNERS:
        assert abs(changed[part].sum() - 0.2 * len(part)) < 1


def test_uneven_changes_the_share_of_every_client():
    rates = [k / 12 for k in range(12)]
    changed = noise.uneven(rates).apply(LABELS, OWNERS, 10, stream()) != LABELS
    for rate, part in zip(rates, OWNERS):
        assert changed[part].sum() == noise.nearest(rate * len(part))


def test_symmetric_draws_uniformly_among_the_other_classes():
    labels = np.full(90_000, 3)
    noisy = noise.symmetric(1.0).apply(labels, None, 10, stream())
    counts = np.bincount(noisy, minlength=10)
    assert counts[3] == 0
    assert np.abs(np.delete(counts, 3) - 10_000).max() < 500


def test_pair_moves_to_the_next_class():
    noisy = noise.pair(1.0).apply(LABELS, None, 10, stream())
    assert np.array_equal(noisy, (LABELS + 1) % 10)


def test_constant_sets_the_share_and_keeps_labels_that_match():
    noisy = noise.constant(0.4, 7).apply(LABELS, None, 10, stream())
    assert set(noisy[noisy != LABELS]) == {7}
    hit = (noisy != LABELS).sum()
    assert 400 * 0.8 < hit < 400  # about a tenth of those chosen had label 7 before
    assert noise.constant(1.0).apply(LABELS, None, 10, stream()).max() == 0
    with pytest.raises(BadRequest, match="class 12, but there are 10"):
        noise.constant(0.4, 12).apply(LABELS, None, 10, stream())


@pytest.mark.parametrize("kind", [noise.symmetric, noise.pair, noise.constant])
def test_unit_client_takes_whole_clients(kind):
    noisy = kind(0.25, unit="client").apply(LABELS, OWNERS, 10, stream())
    hit = [np.mean((noisy != LABELS)[part]) for part in OWNERS]
    if kind is not noise.constant:
        assert sorted(set(hit)) == [0.0, 1.0]
        assert sum(hit) == 3  # a quarter of twelve
    else:
        assert sum(set(noisy[part]) == {0} for part in OWNERS) == 3


def test_permute_gives_a_share_of_clients_their_own_permutation():
    shift = noise.permute(0.5)
    known = shift.permutations(12, 10, stream(4))
    shifted = shift.apply(LABELS, OWNERS, 10, stream(4))
    assert len(known) == 6
    for client, part in enumerate(OWNERS):
        expected = known[client][LABELS[part]] if client in known else LABELS[part]
        assert np.array_equal(shifted[part], expected)
    for permutation in known.values():
        assert sorted(permutation) == list(range(10))
        assert (permutation != np.arange(10)).any()


def test_permute_with_two_classes_is_the_swap():
    for permutation in noise.permute(1.0).permutations(50, 2, stream()).values():
        assert permutation.tolist() == [1, 0]


@settings(max_examples=50, deadline=None)
@given(
    kind=st.sampled_from([noise.symmetric, noise.pair, noise.constant]),
    rate=st.floats(0, 1),
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=15),
    seed=st.integers(0, 2**32),
)
def test_any_clients_any_rate(kind, rate, sizes, seed):
    labels = stream(seed).integers(0, 4, sum(sizes))
    owners = np.split(stream(seed).permutation(len(labels)), np.cumsum(sizes)[:-1])
    noisy = kind(rate).apply(labels, owners, 4, stream(seed))
    changed = (noisy != labels).sum()
    total = int(np.floor(rate * len(labels) + 0.5))
    assert changed <= total + 1e-9 if kind is noise.constant else abs(changed - total) <= 1e-6 * len(labels)
    assert ((noisy >= 0) & (noisy < 4)).all()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: noise.symmetric(1.2), "rate of symmetric must be between 0 and 1, not 1.2"),
        (lambda: noise.symmetric(float("nan")), "rate of symmetric"),
        (lambda: noise.pair("a"), "rate of pair"),
        (lambda: noise.pair(0.1, unit="class"), "unit of pair must be sample or client"),
        (lambda: noise.constant(0.1, when="during"), "when of constant must be before or after"),
        (lambda: noise.constant(0.1, cls=-1), "class of constant"),
        (lambda: noise.symmetric(0.1, unit="client", when="before"), "cannot choose clients before there are any"),
        (lambda: noise.permute(0.5, unit="sample"), "permute permutes whole clients"),
        (lambda: noise.symmetric(0.1).apply(LABELS, None, 1, stream()), "at least 2 classes"),
        (lambda: noise.symmetric(0.1, unit="client").apply(LABELS, None, 10, stream()), "needs clients"),
        (lambda: noise.permute(0.1).apply(LABELS, None, 10, stream()), "needs clients"),
        (lambda: noise.uneven(0.1), "a list with one rate per client, not 0.1"),
        (lambda: noise.uneven([0.1, 2]), "a rate of uneven must be between 0 and 1, not 2"),
        (lambda: noise.uneven([0.1, 0.2]).apply(LABELS, OWNERS, 10, stream()), "2 rates for 12 clients"),
    ],
)
def test_bad_requests_are_one_sentence(make, reason):
    with pytest.raises(BadRequest, match=reason) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_noise_refuses_clients_that_share_samples():
    lazy = partition.resample(100)(LABELS, 1_000_000, stream())
    with pytest.raises(BadRequest, match=r"share samples .*when=before"):
        noise.symmetric(0.1).apply(LABELS, lazy, 10, stream())


def test_before_collects_noise_at_clients_with_many_zeros():
    """With `before` the largest tenth of a skewed federation is noisier than the smallest half."""
    labels = np.random.default_rng(5).permutation(np.repeat(np.arange(10), 6000))
    noisy = noise.constant(0.2, when="before").apply(labels, None, 10, stream())
    shards = partition.lognormal(0.9, 0.3)(noisy, 100, stream(1))
    order = np.argsort(shards.sizes)
    rate = [np.mean((noisy != labels)[np.concatenate([shards[k] for k in ks])]) for ks in (order[-10:], order[:50])]
    assert rate[0] > 2 * rate[1]


def test_public_names():
    assert set(noise.__all__) == {"symmetric", "pair", "constant", "permute", "gaussian", "replace_tokens", "uneven"}
    assert noise.symmetric(0.2) == noise.symmetric(0.2, unit="sample", when="after")
