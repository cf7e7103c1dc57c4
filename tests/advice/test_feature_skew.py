"""Feature skew: how well the inputs tell clients apart, given the class."""

from __future__ import annotations

import numpy as np
import pytest

import undrift as ud
from undrift.advice.diagnosis import inputs
from undrift.advice.drawn import drawn
from undrift.advice.feature_skew import FARTHEST, by_chance, feature_skew, pairs

MNIST = pytest.param("mnist", marks=[pytest.mark.data, pytest.mark.slow])


def found(data: str = "digits", partition: str = "dirichlet(0.5)", **options) -> float:
    federation = ud.federate(data, partition, 20, **options)
    return next(finding.value for finding in inputs(drawn(federation), federation) if finding.name == "feature_skew")


@pytest.mark.parametrize(
    ("transform", "strengths"),
    [("rotated", (2, 5, 10, 20, 40)), ("blurred", (0.4, 0.5, 0.6, 0.8, 1.0)), ("noisy", (0.1, 0.15, 0.2, 0.3, 0.4))],
)
@pytest.mark.parametrize("data", ["digits", MNIST])
def test_five_strengths_come_out_in_order(data, transform, strengths):
    values = [found(data, domains=f"identity+{transform}({strength})") for strength in strengths]
    assert values == sorted(values)
    assert values[-1] > 3 * values[0]


@pytest.mark.parametrize("partition", ["iid", "dirichlet(0.1)", "pathological(1)"])
def test_skewed_labels_are_no_feature_skew(partition):
    assert found(partition=partition) < 0.1


def test_wrong_labels_are_no_feature_skew():
    assert found(partition="iid", noise="symmetric(0.3, unit=client)") < 0.1


def normal(shift: float, size: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    client = np.tile([0, 1], size // 2)
    return generator.normal(size=(size, 3)) + shift * client[:, None], np.zeros(size, dtype=int), client


def test_its_limits_are_zero_and_one():
    assert feature_skew(*normal(0.0, 2000)) == pytest.approx(0, abs=0.06)
    assert feature_skew(*normal(100.0)) == pytest.approx(1, abs=1e-4)


def test_two_small_clients_differ_by_chance():
    """Of 200 samples the classifier happens to tell a third; shuffled clients show how little that says."""
    alike = normal(0.0)
    assert feature_skew(*alike) > 0.2
    assert feature_skew(*alike) < 2 * by_chance(*alike, seed=0)
    apart = normal(2.0)
    assert feature_skew(*apart) > 3 * by_chance(*apart, seed=0)


def test_a_class_at_one_client_says_nothing():
    points, _, client = normal(5.0)
    assert feature_skew(points, client, client) is None  # every client has a class of its own
    assert feature_skew(points[:8], np.zeros(8, dtype=int), client[:8]) is None  # four samples each


def test_clients_that_are_always_told_apart_still_move_apart():
    """Half of the pairs look alike, the others never overlap: the order of strengths must not be chance."""
    values = []
    for shift in (8.0, 12.0, 16.0):
        points, labels, client = normal(shift, 400)
        values.append(feature_skew(points, labels, client + 2 * (np.arange(400) % 4 > 1)))
    assert values == sorted(values)
    assert len(set(values)) == 3


def test_the_distance_of_a_pair_by_hand():
    """Leanings to client 0: its samples 1 and 3, the other's 2 and 0. Means 2 and 1, both with a sum of squares of 2 over two
    degrees of freedom in all: a standard deviation of √2."""
    scores = np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    assert pairs(scores, np.array([0, 0, 1, 1])) == [(pytest.approx(0.5**0.5), 1.0)]
    assert pairs(scores[[0, 0, 2, 2]], np.array([1, 1, 0, 0])) == [(FARTHEST, 1.0)]  # no spread at all


def test_two_normal_clients_have_the_auc_of_their_distance():
    """One input, shifted by one standard deviation: 2·AUC − 1 = 2·Φ(1/√2) − 1 = 0.5205."""
    draw, client = np.random.default_rng(0), np.tile([0, 1], 4000)
    points = draw.normal(size=(8000, 1)) + client[:, None]
    assert feature_skew(points, np.zeros(8000, dtype=int), client) == pytest.approx(0.5205, abs=0.02)
