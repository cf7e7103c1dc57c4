"""Losses and metrics of the shipped tasks, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.tasks import TASKS, read
from undrift.tasks.multilabel import average_precision

LOGITS = torch.tensor([[[2.0, 0.0], [0.0, 1.0]], [[0.0, 3.0], [5.0, 0.0]]])  # two sequences of two places, two tokens
TOKENS = torch.tensor([[0, 0], [1, -1]])  # the last place of the second does not count


def test_a_sequence_counts_its_tokens_and_no_padding():
    task = read("sequence").with_outputs(2)
    a, b, c = (F.cross_entropy(z[None], torch.tensor([t])).item() for z, t in
               ((LOGITS[0, 0], 0), (LOGITS[0, 1], 0), (LOGITS[1, 0], 1)))  # fmt: skip
    assert task.loss(LOGITS, TOKENS).tolist() == pytest.approx([(a + b) / 2, c])
    found = task.measure(LOGITS, TOKENS)
    assert found["token_accuracy"] == pytest.approx(2 / 3)
    assert found["perplexity"] == pytest.approx(math.exp((a + b + c) / 3))
    assert task.error(LOGITS, TOKENS).tolist() == [0.5, 0.0]


def test_more_padding_changes_nothing():
    task = read("sequence").with_outputs(2)
    longer = torch.cat([LOGITS, torch.full((2, 3, 2), 9.0)], 1)
    padded = torch.cat([TOKENS, torch.full((2, 3), -1)], 1)
    assert torch.equal(task.loss(LOGITS, TOKENS), task.loss(longer, padded))
    assert task.measure(LOGITS, TOKENS) == task.measure(longer, padded)


@pytest.mark.parametrize(("loss", "each"), [("mse", [4.0, 0.25]), ("mae", [2.0, 0.5]), ("huber", [1.5, 0.125])])
def test_losses_of_a_regression(loss, each):
    task = read(f"regression(loss={loss})").with_outputs(1)
    output, y = torch.tensor([[3.0], [1.0]]), torch.tensor([1.0, 0.5])
    assert task.loss(output, y).tolist() == each


def test_a_regression_is_measured_in_the_units_of_its_targets():
    task = read("regression(center=100, scale=10)").with_outputs(1)
    output, y = torch.tensor([[1.0], [-1.0], [0.0]]), torch.tensor([113.0, 90.0, 100.0])
    found = task.measure(output, y)
    assert task.predict(output).flatten().tolist() == [110.0, 90.0, 100.0]
    assert found["rmse"] == pytest.approx(math.sqrt(9 / 3))
    assert found["mae"] == pytest.approx(1.0)
    assert found["r2"] == pytest.approx(1 - 9 / ((113 - 101) ** 2 + (90 - 101) ** 2 + 1))
    assert task.loss(output, y).tolist() == pytest.approx([0.09, 0.0, 0.0])
    assert "r2" not in task.measure(output[:2], torch.ones(2))  # equal targets: undefined


def test_several_labels():
    task = read("multilabel").with_outputs(3)
    output = torch.tensor([[2.0, -1.0, 3.0], [1.0, 1.0, -1.0]])
    y = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    found = task.measure(output, y)
    assert found["f1_micro"] == pytest.approx(2 * 2 / (3 + 4))  # two hits, three true, four predicted
    assert found["f1_macro"] == pytest.approx((1 + 0 + 0) / 3)
    assert found["mean_average_precision"] == pytest.approx((1 + 0.5) / 2)  # of the labels that occur
    assert task.error(output, y).tolist() == pytest.approx([1 / 3, 2 / 3])
    assert task.loss(output, y).tolist() == pytest.approx(
        F.binary_cross_entropy_with_logits(output, y, reduction="none").mean(1).tolist()
    )


def test_average_precision_with_ties():
    assert average_precision(np.array([3.0, 2.0, 1.0]), np.array([True, False, True])) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision(np.zeros(4), np.array([True, False, False, True])) == pytest.approx(0.5)


def test_masks():
    task = read("segmentation").with_outputs(2)
    y = torch.tensor([[[0, 0], [1, 1]]])
    guess = torch.tensor([[[0, 1], [1, 1]]])
    output = F.one_hot(guess, 2).movedim(-1, 1).float() * 8
    found = task.measure(output, y)
    assert found["mean_iou"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert found["dice"] == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert found["pixel_accuracy"] == 0.75
    assert task.loss(output, y).tolist() == pytest.approx([F.cross_entropy(output, y).item()])
    assert torch.equal(task.predict(output), guess)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_named_by_text_and_written_back(name):
    task = read(name)
    assert read(task.spelled) == task == getattr(ud.tasks, name)()
    assert task.name == name


def test_the_text_of_a_regression_keeps_its_loss():
    task = ud.tasks.regression(loss="huber", scale=2.0)
    assert read(task.spelled) == task == read("regression(loss=huber, scale=2.0)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("regresion", ["regression"]),
        ("regression(loss=cubic)", ["mse", "huber", "cubic"]),
        ("regression(scale=0)", ["scale", "above 0"]),
        ("sequence(outputs=-1)", ["outputs"]),
        (3, ["regression(loss=huber)", "3"]),
        ("math:pi", ["task", "math:pi"]),
    ],
)
def test_what_is_no_task_is_refused(text, words):
    with pytest.raises(BadRequest) as refused:
        read(text)
    assert all(word in str(refused.value) for word in words), refused.value
