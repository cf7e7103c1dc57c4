"""Metrics by hand, and against scikit-learn where it has the same one."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn import metrics as reference
from torch.nn import functional as F

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.evaluate.metrics import fpr_at, metrics, two_set_auroc
from undrift.experiment.summary import spread
from undrift.tasks.classification import Classification, auroc, calibration_error, confusion
from undrift.testing import run_parts


def sure(guesses: list[int], classes: int, height: float = 5.0) -> torch.Tensor:
    return height * F.one_hot(torch.tensor(guesses), classes).float()


def test_accuracy_f1_and_recall_by_hand():
    # truth 0 0 0 1, guess 0 0 1 1: class 0 has F1 2·2/(3+2) = 4/5, class 1 has 2·1/(1+2) = 2/3; class 2 does not occur
    found = metrics(sure([0, 0, 1, 1], 3), torch.tensor([0, 0, 0, 1]), Classification(outputs=3))
    assert found["accuracy"] == 0.75
    assert found["f1_macro"] == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert found["f1_weighted"] == pytest.approx((3 * 4 / 5 + 2 / 3) / 4)
    assert found["recall:0"] == pytest.approx(2 / 3)
    assert found["recall:1"] == 1
    assert "recall:2" not in found
    assert found["balanced_accuracy"] == pytest.approx((2 / 3 + 1) / 2)


def test_calibration_error_by_hand():
    # two samples of confidence 0.8 (bin 12 of 15), one right: |0.5 − 0.8|; two of 0.6 (bin 9), both right: |1 − 0.6|
    logits = torch.tensor([[0.8, 0.2], [0.8, 0.2], [0.6, 0.4], [0.6, 0.4]]).log()
    assert calibration_error(logits, torch.tensor([0, 1, 0, 0])) == pytest.approx(0.5 * 0.3 + 0.5 * 0.4, abs=1e-6)


def test_a_model_that_is_right_as_often_as_it_says_is_calibrated():
    logits = torch.tensor([[0.75, 0.25]] * 4).log()
    assert calibration_error(logits, torch.tensor([0, 0, 0, 1])) == pytest.approx(0.0, abs=1e-7)


def test_auroc_by_hand():
    # class 1 scores 0.1 0.4 | 0.35 0.8 for truth 0 0 | 1 1: of four pairs three are in order
    p = torch.tensor([0.1, 0.4, 0.35, 0.8])
    assert auroc(torch.stack([1 - p, p], 1).log(), torch.tensor([0, 0, 1, 1]), 2) == pytest.approx(0.75)


def test_metrics_are_those_of_scikit_learn():
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(0, 5, (300,), generator=draw)
    logits = torch.randn(300, 5, generator=draw) + F.one_hot(y, 5)
    found, guess = metrics(logits, y, Classification(outputs=5)), logits.argmax(1)
    assert found["accuracy"] == pytest.approx(reference.accuracy_score(y, guess))
    assert found["f1_macro"] == pytest.approx(reference.f1_score(y, guess, average="macro"))
    assert found["f1_weighted"] == pytest.approx(reference.f1_score(y, guess, average="weighted"))
    assert found["balanced_accuracy"] == pytest.approx(reference.balanced_accuracy_score(y, guess))
    assert found["auroc"] == pytest.approx(reference.roc_auc_score(y, logits.double().softmax(1), multi_class="ovr"))
    assert [found[f"recall:{c}"] for c in range(5)] == pytest.approx(reference.recall_score(y, guess, average=None))
    assert torch.equal(confusion(logits, y, 5), torch.from_numpy(reference.confusion_matrix(y, guess)))


def test_what_is_undefined_is_left_out():
    assert "auroc" not in metrics(sure([0, 0], 3), torch.tensor([0, 0]), Classification(outputs=3))
    assert metrics(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), Classification(outputs=3)) == {}


def test_logits_that_are_not_numbers_do_not_break_the_record():
    found = metrics(torch.full((3, 2), math.nan), torch.tensor([0, 1, 1]), Classification(outputs=2))
    assert "auroc" not in found
    assert math.isnan(found["loss"])


def test_a_set_against_itself_has_auroc_one_half_and_a_separate_one_1():
    scores = torch.tensor([0.3, 0.1, 0.9, 0.9, 0.5])
    assert two_set_auroc(scores, scores) == 0.5
    assert two_set_auroc(scores + 1, scores) == 1
    assert fpr_at(scores + 1, scores) == 0
    assert fpr_at(scores, scores) == 1.0  # keeping 95 % of five means keeping all


def test_fpr95_by_hand():
    # 95 of 100 own samples lie at or above 5: of the others {4, 5, 6, 7} three pass
    own = torch.arange(100.0)
    assert fpr_at(own, torch.tensor([4.0, 5.0, 6.0, 7.0])) == 0.75


def test_deciles_and_rho_by_hand():
    found = spread([i / 20 for i in range(20)])  # worst tenth: 0 and 0.05; best: 0.9 and 0.95
    assert found["worst_decile"] == pytest.approx(0.025)
    assert found["best_decile"] == pytest.approx(0.925)
    assert found["mean"] == pytest.approx(0.475)


def test_rho_counts_the_clients_above_epsilon(tiny):
    result = ud.run("fedavg", tiny, model=tiny.model, rounds=2, out=False, cohort=1.0, thresholds=(0.0, 0.6, 1.0))
    own = [
        v
        for (v,) in result.rows(
            "SELECT value FROM metrics WHERE stage='L2' AND data='own' AND metric='accuracy' AND round=1"
        )
    ]
    assert len(own) == 4
    assert result.summary["stages"]["L2"]["rho"] == {f"{e:g}": sum(v > e for v in own) for e in (0.0, 0.6, 1.0)}


def test_acc_l_by_slice_sizes_is_g_where_all_hold_one_model_and_slices_partition_the_test_set(tiny):
    run = run_parts("fedavg", tiny, evaluate_every=1)
    sizes = [len(tiny.slice(client)[0]) for client in range(4)]
    assert sum(sizes) == len(tiny.test_y)
    own, whole = run.metrics("L1", "own"), run.metrics("G", "global")
    for round in range(3):
        weighted = sum(n * own[round, client] for client, n in enumerate(sizes)) / sum(sizes)
        assert weighted == pytest.approx(whole[round, None], abs=1e-12)


def top_two(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (logits.topk(2, 1).indices == y[:, None]).any(1).double().mean()


def test_a_users_own_metric_is_recorded_at_every_stage(tiny):
    run = run_parts("fliu", tiny, metrics=top_two, rounds=1)
    for stage, data in (("G", "global"), ("L1", "own"), ("L2", "global")):
        found = run.metrics(stage, data, "top_two")
        assert found
        assert all(value >= run.metrics(stage, data)[key] for key, value in found.items())


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"accuracy": top_two}, "own; give yours another name"),
        (lambda z, y: z, "one number"),
        ("nowhere:metric", "cannot be imported"),
    ],
)
def test_a_metric_that_cannot_be_is_refused(tiny, given, word):
    with pytest.raises(BadRequest, match=word):
        run_parts("fedavg", tiny, metrics=given)


def test_the_recall_of_every_class_is_in_the_summary(tiny):
    found = ud.run("fedavg", tiny, model=tiny.model, rounds=1, out=False, cohort=1.0).summary["stages"]["G"]
    assert set(found["recall"]) == {"0", "1", "2"}
    assert {"auroc", "calibration_error", "balanced_accuracy"} <= set(found)
    assert not any(name.startswith("recall:") for name in found)
