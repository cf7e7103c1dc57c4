"""The estimated share of wrong labels against the truth, and what must not be taken for it."""

from __future__ import annotations

import numpy as np
import pytest

import undrift as ud
from undrift.advice.diagnosis import inputs
from undrift.advice.drawn import drawn
from undrift.advice.neighbours import Neighbours, neighbours
from undrift.advice.wrong_labels import shares, surest, without_common_label, wrong_labels
from undrift.report.label_distribution import changed

MNIST = pytest.param("mnist", marks=[pytest.mark.data, pytest.mark.slow])
RATES = [0.0, 0.1, 0.2, 0.3, 0.4]


def findings(federation) -> dict:
    return {finding.name: finding for finding in inputs(drawn(federation), federation)}


def truth(federation) -> float:
    rows = np.concatenate([federation.rows(client) for client in range(federation.clients)])
    return float(changed(federation)[rows].mean())


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("unit", ["sample", "client"])
@pytest.mark.parametrize("partition", ["iid", "dirichlet(0.5)", "dirichlet(0.1)"])
def test_the_share_is_found_within_five_points(partition, unit, rate):
    check_share("digits", partition, unit, rate)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("partition", "unit", "rate"),
    [
        ("iid", "sample", 0.1), ("iid", "client", 0.2), ("iid", "sample", 0.4), ("iid", "client", 0.4),
        ("dirichlet(0.5)", "sample", 0.3), ("dirichlet(0.5)", "client", 0.3), ("dirichlet(0.1)", "sample", 0.2),
        ("dirichlet(0.1)", "client", 0.4), ("dirichlet(0.1)", "sample", 0.4),
    ],
)  # fmt: skip
def test_the_share_is_found_within_five_points_on_mnist(partition, unit, rate):
    check_share("mnist", partition, unit, rate)


def check_share(data, partition, unit, rate):
    federation = ud.federate(data, partition, 20, noise=f"symmetric({rate}, unit={unit})")
    found = findings(federation)["label_noise"]
    assert found.value == pytest.approx(truth(federation), abs=0.05)
    assert found.axis == ("wrong labels" if rate else None)


@pytest.mark.parametrize("partition", ["pathological(1)", "label_skew(0.1)", "dirichlet(0.1)", "quantity_skew(0.3)"])
@pytest.mark.parametrize("data", ["digits", MNIST])
def test_skewed_labels_are_not_wrong(data, partition):
    found = findings(ud.federate(data, partition, 20))
    assert found["label_noise"].value < 0.02
    assert found["label_noise"].axis is None


@pytest.mark.parametrize("domains", ["identity+inverted", "identity+rotated(45)+blurred+noisy"])
def test_feature_skew_is_not_wrong_labels(domains):
    assert findings(ud.federate("digits", "dirichlet(0.5)", 20, domains=domains))["label_noise"].value < 0.03


def test_it_says_where_wrong_labels_gather():
    federation = ud.federate("digits", "iid", 10, noise="uneven([0, 0, 0, 1, 0, 0, 0, 0, 1, 0])")
    found = findings(federation)["label_noise"]
    shares_found = found.details["by_client"]
    assert sorted(shares_found, key=shares_found.get)[-2:] in (["client 3", "client 8"], ["client 8", "client 3"])
    assert found.details["gathered"]
    assert "gathered at client" in found.text
    spread = findings(ud.federate("digits", "iid", 10, noise="symmetric(0.3)"))["label_noise"]
    assert not spread.details["gathered"]
    assert spread.text.endswith("at all clients alike")


def test_classes_that_cannot_be_recognised_are_not_called_noise():
    generator = np.random.default_rng(0)
    pixels, labels = generator.normal(size=(400, 20)).astype(np.float32), generator.integers(0, 4, 400)
    federation = ud.Federation.from_clients([(pixels[k::4], labels[k::4]) for k in range(4)])
    found = findings(federation)["label_noise"]
    assert found.value is None
    assert "cannot be measured: samples that look alike have the same class too seldom" in found.text


# ---- by hand -------------------------------------------------------------------------------------------------


def test_neighbours_leave_the_sample_itself_out():
    points = np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 0.0], [5.1, 0.0]])
    near = neighbours(points)
    assert near.nearest[:, 0].tolist() == [1, 0, 3, 2]
    assert not (near.nearest == np.arange(4)[:, None]).any()


def test_votes_count_the_neighbours_labels():
    near = Neighbours(np.zeros((3, 1)), np.array([[1, 2], [0, 2], [0, 1]]))
    assert near.votes(np.array([0, 1, 1]), 2).tolist() == [[0, 1], [0.5, 0.5], [0.5, 0.5]]
    assert near.votes(np.array([0, 1, 1]), 2, slice(0, 1)).tolist() == [[0, 1], [1, 0], [1, 0]]


def test_the_surest_are_chosen_class_by_class():
    said, surety = np.array([0, 0, 0, 1, 1]), np.array([0.9, 0.8, 0.7, 0.3, 0.2])
    assert surest(said, surety, 0.5).tolist() == [True, True, False, True, False]


def test_a_client_counts_by_its_samples_not_by_its_sure_ones():
    """Client 0: two of four sure samples disagree. Client 1: no sure sample, so the mean, 1/2. Both are 1/2."""
    disagrees = np.array([True, True, False, False, True, True])
    total, by_client = shares(disagrees, np.array([True] * 4 + [False] * 2), np.array([0] * 4 + [1] * 2))
    assert by_client == {0: 0.5, 1: 0.5}
    assert total == 0.5


def test_two_far_groups_with_one_label_changed():
    points = np.concatenate([np.random.default_rng(k).normal(10 * k, 0.1, (30, 2)) for k in range(2)])
    labels = np.repeat([0, 1], 30)
    labels[0] = 1
    found = wrong_labels(neighbours(points), labels, np.tile([0, 1], 30), 2)
    assert found.known == 1
    assert np.flatnonzero(~found.agrees).tolist() == [0]


@pytest.mark.parametrize(("seed", "rate"), [(0, 0.2), (0, 0.4), (1, 0.3)])
def test_where_all_who_hold_a_class_have_wrong_labels_the_share_is_not_known_and_remedies_are_raced(seed, rate):
    """One class per client: nobody calls the class of a noisy pair of clients by its name. The number would be 7 to 9 points off."""
    federation = ud.federate("digits", "pathological(1)", 20, noise=f"symmetric({rate}, unit=client)", seed=seed)
    found = findings(federation)["label_noise"]
    assert found.value is None
    assert found.axis == "wrong labels"
    wrong = {federation.client_name(k) for k in range(20) if changed(federation)[federation.rows(k)].mean() > 0.5}
    assert set(found.details["unknown"]) <= wrong
    assert "cannot be known: at client" in found.text


def test_a_client_without_a_common_label_by_hand():
    surety, client = np.array([0.2, 0.3, 0.9, 0.2, 0.9, 0.9]), np.array([0, 0, 0, 1, 1, 1])
    assert without_common_label(surety, client) == (0,)
