"""Properties of every partition: each index at most once, bounded time, a function of the seed alone."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import undrift.federation.partition as partition
from undrift.core.errors import BadRequest

BALANCED = np.repeat(np.arange(10), 6000)  # Fashion-MNIST's labels up to their order
SKEWED = np.repeat(np.arange(7), [900, 20, 350, 1, 40, 77, 612])

WHOLE = [  # every sample exactly once
    partition.iid(),
    partition.iid(stratified=True),
    partition.dirichlet(0.1),
    partition.dirichlet(0.01),
    partition.dirichlet(1e-5),
    partition.dirichlet(0.1, balance=False),
    partition.dirichlet(0.1, recipe="feddf"),
    partition.dirichlet(0.3, numpy_seed=7),
    partition.label_skew(1.0),
    partition.label_skew(0.001),
    partition.quantity_skew(1.0),
    partition.quantity_skew(0.01),
    partition.label_quantity_skew(1.0),
    partition.label_quantity_skew(0.01),
    partition.label_quantity_skew(1.0, form="sinkhorn"),
    partition.label_quantity_skew(0.01, form="sinkhorn"),
    partition.lognormal(0.9, 0.3),
    partition.lognormal(2.0, 0.01),
]
SOME = [  # samples that do not fit are not dealt
    partition.pathological(2),
    partition.pathological(3),
    partition.pathological(2, form="fliu"),
    partition.pathological(3, form="fliu", balanced=False),
    partition.shards(2),
    partition.class_counts([3, 1, 4]),
]


def dealt(recipe, labels, clients, seed=0):
    return recipe(labels, clients, np.random.default_rng(seed))


# A thousand draws of a thousand clients each: seconds each. The one with a published limit is in test_dirichlet.py.
LONG = {recipe for recipe in WHOLE if isinstance(recipe, partition.dirichlet) and recipe.recipe == "niid-bench"}
SIZED = [
    pytest.param(recipe, clients, marks=pytest.mark.slow if clients == 1000 and recipe in LONG else ())
    for recipe in WHOLE + SOME
    for clients in (2, 10, 100, 1000)
]


@pytest.mark.parametrize(("recipe", "clients"), SIZED, ids=repr)
def test_every_index_at_most_once_and_no_client_empty_in_bounded_time(recipe, clients):
    began = time.process_time()
    shards = dealt(recipe, BALANCED, clients)
    assert time.process_time() - began < 5
    held = np.concatenate(shards)
    assert len(shards) == clients
    assert all(shard.dtype == np.int64 for shard in shards)
    assert min(shards.sizes) >= 1
    assert len(np.unique(held)) == len(held)
    assert held.min() >= 0
    assert held.max() < len(BALANCED)
    if recipe in WHOLE:
        assert len(held) == len(BALANCED)


@pytest.mark.parametrize("recipe", WHOLE + SOME, ids=repr)
def test_a_function_of_the_seed_alone(recipe):
    first, again, other = (dealt(recipe, BALANCED[::10], 8, seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    if getattr(recipe, "numpy_seed", None) is None:
        assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@settings(max_examples=60, deadline=None)
@given(
    recipe=st.sampled_from(WHOLE + SOME),
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=12),
    clients=st.integers(1, 80),
    seed=st.integers(0, 2**32),
)
def test_any_labels_and_clients_are_dealt_or_refused(recipe, sizes, clients, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    shards = outcome(recipe, labels, clients, seed)
    if isinstance(shards, BadRequest):
        assert any(character.isdigit() for character in str(shards))  # the values are named
        return
    held = np.concatenate(shards)
    assert len(np.unique(held)) == len(held)
    assert min(shards.sizes) >= 1
    if recipe in WHOLE:
        assert len(held) == len(labels)


def outcome(recipe, labels, clients, seed):
    """The shards, or the error."""
    try:
        return dealt(recipe, labels, clients, seed)
    except BadRequest as refusal:
        return refusal


@pytest.mark.parametrize("recipe", WHOLE, ids=repr)
def test_more_clients_than_samples_is_refused_with_the_values_and_the_fix(recipe):
    with pytest.raises(BadRequest, match=r"3000 clients .* 2000;.*resample"):
        dealt(recipe, SKEWED, 3000)


@pytest.mark.parametrize("recipe", WHOLE[:3] + SOME, ids=repr)
@pytest.mark.parametrize(
    ("labels", "reason"),
    [(np.array([0.0, 1.0, 1.5]), "integers"), (np.array([[0, 1]]), "flat"), (np.array([0, -1, 2]), "negative")],
)
def test_invalid_labels_are_refused(recipe, labels, reason):
    with pytest.raises(BadRequest, match=reason):
        dealt(recipe, labels, 1)


@pytest.mark.parametrize("clients", [0, -3, 2.5, True])
def test_clients_must_be_a_number_of_clients(clients):
    with pytest.raises(BadRequest, match="clients must be"):
        dealt(partition.iid(), BALANCED, clients)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: partition.dirichlet(0), "beta of dirichlet must be a finite number above 0, not 0"),
        (lambda: partition.dirichlet(float("nan")), "beta"),
        (lambda: partition.dirichlet(0.1, least=0), "least"),
        (lambda: partition.dirichlet(0.1, recipe="pfllib"), "recipe .* 'niid-bench' or 'feddf'"),
        (lambda: partition.dirichlet(0.1, recipe="feddf", numpy_seed=1), "drop one"),
        (lambda: partition.dirichlet(0.1, numpy_seed=-1), "numpy_seed"),
        (lambda: partition.pathological(0), "classes_per_client"),
        (lambda: partition.pathological(1.5), "classes_per_client"),
        (lambda: partition.pathological(2, form="x"), "form"),
        (lambda: partition.shards(0), "per_client"),
        (lambda: partition.label_skew(-1), "alpha"),
        (lambda: partition.label_skew(1, tolerance=0), "tolerance"),
        (lambda: partition.quantity_skew("a"), "alpha"),
        (lambda: partition.label_quantity_skew(1, form="both"), "form"),
        (lambda: partition.lognormal(0, 1), "sigma"),
        (lambda: partition.lognormal(1, float("inf")), "alpha"),
        (lambda: partition.resample(0), "size"),
        (lambda: partition.resample(5, alpha=0), "alpha"),
        (lambda: partition.class_counts([]), "list of counts"),
        (lambda: partition.class_counts([1, -2]), "a count"),
        (lambda: partition.class_counts([[1, 2], [0, 0]]), "without samples"),
    ],
)
def test_bad_parameters_are_one_sentence(make, reason):
    with pytest.raises(BadRequest, match=reason) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_the_public_names_are_the_partitions():
    assert set(partition.__all__) == {
        "iid", "dirichlet", "pathological", "shards", "label_skew", "quantity_skew", "label_quantity_skew",
        "lognormal", "natural", "by_domain", "resample", "class_counts", "target_skew", "cluster_skew",
    }  # fmt: skip
    assert all(getattr(partition, name).__dataclass_params__.frozen for name in partition.__all__)


def test_equal_partitions_compare_and_hash_equal():
    assert partition.class_counts([[1, 2]]) == partition.class_counts(((1, 2),))
    assert len({partition.dirichlet(0.1), partition.dirichlet(0.1), partition.iid()}) == 2
