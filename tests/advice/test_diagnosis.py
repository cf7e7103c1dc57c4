"""The findings of whole federations: special cases, limits, and what cannot be measured."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.advice.diagnosis import by_chance, diagnose
from undrift.advice.drawn import drawn
from undrift.advice.one_round import mean_cosine, one_round, relative_drift
from undrift.advice.pictures import pictures
from undrift.core.errors import BadRequest

SMALL = {"model": "mlp(8)", "epochs": 1}
NAMES = [
    "label_skew", "classes_per_client", "quantity_skew", "feature_skew", "label_noise", "drift", "alignment", "round_cost", "clients",
]  # fmt: skip


def test_equal_clients_point_nowhere():
    found = diagnose(SMALL, ud.federate("digits", "iid", 10))
    assert found.axes == ()
    assert [finding.name for finding in found.findings] == NAMES
    assert found["label_skew"].value == pytest.approx(found["label_skew"].details["by_chance"], abs=0.05)
    assert found["drift"].value == pytest.approx(1, abs=0.3)


def test_skewed_and_noisy_clients_point_to_their_remedies():
    federation = ud.federate("digits", "dirichlet(0.1)", 20, noise="symmetric(0.3)")
    assert set(diagnose(SMALL, federation).axes) >= {"label skew", "wrong labels", "drift"}


def test_one_class_per_client_is_one_effective_class():
    found = diagnose(SMALL, ud.federate("digits", "pathological(1)", 10))
    assert found["classes_per_client"].value == pytest.approx(1)
    assert found["label_skew"].value == pytest.approx(1)
    assert found["feature_skew"].value is None
    assert "no class is at two clients" in found["feature_skew"].text


def test_the_same_federation_gives_the_same_findings():
    federation = ud.federate("digits", "dirichlet(0.3)", 6)
    first, second = (diagnose(SMALL, federation) for _ in range(2))
    cost = NAMES.index("round_cost")  # is measured in seconds
    assert first.findings[:cost] == second.findings[:cost]


def test_test_data_are_not_looked_at():
    federation = ud.federate("digits", "dirichlet(0.3)", 6)
    other = ud.federate("digits", "dirichlet(0.3)", 6)
    other.test_x, other.test_y = torch.full_like(other.test_x, math.nan), torch.full_like(other.test_y, -7)
    cost = NAMES.index("round_cost")
    assert diagnose(SMALL, federation).findings[:cost] == diagnose(SMALL, other).findings[:cost]


def test_a_task_without_classes_says_what_cannot_be_measured():
    found = diagnose({}, ud.federate("diabetes", "iid", 5))
    for name in ("label_skew", "classes_per_client", "label_noise"):
        assert found[name].value is None
        assert "cannot be measured: the task regression has no classes" in found[name].text
    assert found["feature_skew"].value < 0.2
    assert found["drift"].value is not None


def test_tokens_have_no_axes_to_compare():
    tokens = [torch.randint(0, 5, (12, 6)) for _ in range(3)]
    federation = ud.Federation.from_clients([(t, t.roll(-1, 1)) for t in tokens], task="sequence")
    found = diagnose({"model": "lstm(8, 8)", "epochs": 1}, federation)
    assert "inputs are tokens or sequences" in found["feature_skew"].text
    assert found["drift"].value > 0


def test_few_samples_and_one_client_are_said_in_a_sentence():
    generator = np.random.default_rng(0)
    few = [(generator.normal(size=(8, 3)).astype(np.float32), np.array([0, 1] * 4)) for _ in range(3)]
    found = diagnose({"model": "logistic"}, ud.Federation.from_clients(few))
    assert found["label_noise"].text.endswith("18 samples are too few, 50 are needed")
    with pytest.raises(BadRequest, match="has one client"):
        diagnose({}, ud.federate("digits", "iid", 1))


def test_a_large_federation_is_sampled_and_says_so():
    said: list[str] = []
    federation = ud.federate("digits", "resample(20)", 5000)
    found = diagnose(SMALL, federation, said.append)
    assert said[0] == "inputs are compared on 2000 samples of 100 clients, of 100000 samples of 5000 clients"
    assert found["clients"].value == 5000


def test_drawing_keeps_the_shares_of_the_clients():
    federation = ud.federate("digits", "dirichlet(0.3)", 10)
    some = drawn(federation, samples=500)
    assert len(some) == pytest.approx(500, abs=10)
    kept = np.bincount(some.client, minlength=10) / federation.sizes
    assert kept == pytest.approx(500 / federation.total, abs=0.06)
    assert drawn(federation).whole


def test_label_shares_by_chance_shrink_with_the_root_of_the_size():
    small, large = (by_chance(np.full((50, 10), size), 0) for size in (10, 1000))
    assert small / large == pytest.approx(10, rel=0.05)


# ---- one round -----------------------------------------------------------------------------------------------


def test_clients_with_the_same_data_do_not_drift_and_agree():
    x, y = ud.federate("digits", "iid", 5).train(0)
    federation = ud.Federation.from_clients([(x.permute(0, 3, 1, 2), y, x.permute(0, 3, 1, 2), y)] * 4)
    result = ud.run("fedavg", federation, rounds=1, model="logistic", epochs=1, batch=1000, selection="all", diagnose="drift",
                    out=False)  # fmt: skip
    assert relative_drift(result, federation) == pytest.approx(0, abs=1e-3)
    assert mean_cosine(result, federation) == pytest.approx(1, abs=1e-5)


def test_drift_is_the_distance_from_the_mean_relative_to_it():
    """The same number, from the updates themselves."""
    federation = ud.federate("digits", "dirichlet(0.3)", 4)
    result = ud.run(
        "fedavg", federation, rounds=1, model="logistic", epochs=1, selection="all", diagnose="drift", out=False
    )
    start = result.setup.runtime.initial
    updates = [
        ud.run("fedavg", federation, rounds=1, model="logistic", epochs=1, selection=f"list([{k}])", out=False).vector
        - start
        for k in range(4)
    ]
    p = torch.from_numpy(federation.sizes / federation.total).float()
    mean = sum(weight * update for weight, update in zip(p, updates))
    spread = sum(weight * (update - mean).square().sum() for weight, update in zip(p, updates))
    assert relative_drift(result, federation) == pytest.approx((spread.sqrt() / mean.norm()).item(), rel=1e-3)


def test_skewed_clients_drift_further_than_shuffled_ones():
    own, mixed = one_round(SMALL, ud.federate("digits", "pathological(1)", 10))
    assert own.drift > 2 * mixed.drift
    assert own.alignment < mixed.alignment
    assert own.samples == mixed.samples


# ---- pictures ------------------------------------------------------------------------------------------------


def test_pictures_show_what_was_found():
    federation = ud.federate("digits", "dirichlet(0.1)", 6, noise="symmetric(0.3)")
    found = diagnose(SMALL, federation)
    drawn_figures = dict(pictures(found))
    assert list(drawn_figures) == ["findings", "labels", "wrong labels"]
    bars = drawn_figures["findings"].data[0]
    assert list(bars.y) == ["label skew", "quantity skew", "feature skew", "wrong labels", "drift"]
    for strength, name in zip(bars.x, ("label_skew", "quantity_skew", "feature_skew", "label_noise", "drift")):
        assert (strength > 1) == (found[name].axis is not None)


def test_pictures_of_a_task_without_classes():
    assert [name for name, _ in pictures(diagnose({}, ud.federate("diabetes", "iid", 5)))] == ["findings"]
