"""Partitions for data without classes: target_skew by quantiles of the target, cluster_skew by clusters of the inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.core.samples import Columns, Ragged
from undrift.federation.partition.cluster_skew import numbers, vocabulary

REGRESSION = ud.tasks.regression()


def bins(y, test_y=(), **options):
    train, test = (torch.tensor(values, dtype=torch.float32) for values in (y, test_y))
    rule = ud.partition.target_skew(1.0, **options)
    return rule.strata((None, train), (None, test), REGRESSION, np.random.default_rng(0))


def test_bins_are_quantiles_of_the_training_targets():
    found, test = bins(range(100, 0, -1), [0.0, 25.5, 26.0, 51.0, 1e9], bins=4)
    assert np.bincount(found).tolist() == [25, 25, 25, 25]
    assert found[0] == 3  # the largest
    assert found[-1] == 0
    assert test.tolist() == [0, 0, 1, 2, 3]
    tied, _ = bins([0.0] * 90 + [1.0] * 10, bins=4)  # equal targets stay together
    assert np.bincount(tied).tolist() == [90, 10]


def test_every_patient_is_dealt_once_and_small_alpha_separates_the_targets():
    def spread(alpha):
        federation = ud.federate("diabetes", f"target_skew({alpha})", 10, seed=1)
        held = np.concatenate(federation.shards)
        assert len(np.unique(held)) == len(held) == 354
        tested = np.concatenate([federation.slice(client)[0].numpy() for client in range(10)])
        assert sorted(tested) == list(range(88))
        return np.std([federation.train(client)[1].mean().item() for client in range(10)])

    assert spread(0.1) > 3 * spread(1000)


def test_a_test_slice_has_the_targets_of_its_client():
    federation = ud.federate("diabetes", "target_skew(0.1)", 5, seed=0)
    own = [federation.train(client)[1].mean().item() for client in range(5)]
    test = [federation.slice(client)[1].mean().item() for client in range(5) if len(federation.slice(client)[0])]
    assert np.corrcoef(own, test)[0, 1] > 0.8


def test_clusters_are_those_that_a_person_sees():
    draw = np.random.default_rng(0)
    owner = draw.permutation(np.repeat(np.arange(3), 20))
    x = torch.from_numpy(owner[:, None] * 10.0 + draw.standard_normal((60, 2)))
    rule = ud.partition.cluster_skew(1.0, k=3)
    found, test = rule.strata((x, x), (x[:7], x[:7]), REGRESSION, np.random.default_rng(1))
    assert np.array_equal(found[:7], test)
    for cluster in range(3):  # each cluster is one group
        assert len(set(owner[found == cluster])) == 1


def test_sequences_count_their_tokens_and_columns_stand_side_by_side():
    texts = Ragged([torch.tensor([0, 0, 1]), torch.tensor([2])], pad=-1)
    assert numbers(texts, vocabulary(texts)).tolist() == [[2 / 3, 1 / 3, 0], [0, 0, 1]]
    both = Columns({"b": texts, "a": torch.tensor([[1.0], [2.0]])})
    assert numbers(both, vocabulary(both)).tolist() == [[1, 2 / 3, 1 / 3, 0], [2, 0, 0, 1]]
    measured = Ragged([torch.tensor([1.0, 3.0]), torch.tensor([5.0])], pad=-1)
    assert numbers(measured, {}).tolist() == [[2], [5]]


@pytest.mark.parametrize("data", ["shapes(clients=4, pictures=10)", "digits", "diabetes"])
def test_cluster_skew_deals_data_of_any_task(data):
    federation = ud.federate(data, "cluster_skew(0.5, 4)", 3)
    held = np.concatenate(federation.shards)
    assert len(np.unique(held)) == len(held) == len(federation.y)
    again = ud.federate(data, "cluster_skew(0.5, 4)", 3)
    assert again.fingerprint == federation.fingerprint


@pytest.mark.parametrize(
    ("data", "options", "reason"),
    [
        ("diabetes", {"partition": "label_skew(0.3)"}, r"label_skew deals by classes, and regression has none; use target_skew\(0.3\)"),
        ("shapes", {"partition": "dirichlet(0.3)"}, r"dirichlet deals by classes, and segmentation has none; use cluster_skew\(0.3\)"),
        ("wine", {"partition": "target_skew(0.3)"}, r"and classification has none; use label_skew\(0.3\)"),
        ("shapes", {"partition": "target_skew(0.3)"}, r"and segmentation has none; use cluster_skew\(0.3\)"),
        ("wine", {"partition": "target_skew(0)"}, "alpha of target_skew must be a finite number above 0, not 0"),
        ("wine", {"partition": "cluster_skew(1.0, 1)"}, "k of cluster_skew must be a whole number of at least 2, not 1"),
        ("wine", {"partition": "cluster_skew(1.0, 1000)"}, "cannot make 1000 clusters of 142 samples"),
        ("diabetes", {"noise": "symmetric(0.2)"}, r"the noise symmetric changes classes, and regression has none; use gaussian\(0.5\)"),
        ("wine", {"noise": "gaussian(0.2)"}, r"gaussian changes numbers, and classification has none; use symmetric\(0.2\)"),
        ("shapes", {"noise": "replace_tokens(0.2)"}, "replace_tokens changes tokens, and segmentation has none; leave it out"),
        ("diabetes", {"noise": "gaussian(-1)"}, "sigma of gaussian must be a finite number of at least 0, not -1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_task_is_refused_and_names_what_does(data, options, reason):
    with pytest.raises(BadRequest, match=reason) as caught:
        ud.federate(data, **options)
    assert "\n" not in str(caught.value)


def test_without_a_partition_the_task_and_the_data_choose_it():
    assert ud.federate("wine", clients=5).spec["partition"] == "dirichlet(0.3)"
    assert ud.federate("diabetes").spec["partition"] == "iid"
    assert ud.federate("shapes(clients=3, pictures=4)").spec["partition"] == "natural"
