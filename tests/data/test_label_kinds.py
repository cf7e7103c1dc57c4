"""Labels that are no classes are refused, and the refusal says what is supported."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.errors import LABELS, BadRequest
from undrift.data import load
from undrift.data.decode import whole_numbers

SUPPORTED = "labels are one class per sample, as a whole number or a name; for other targets give a task"


def test_whole_valued_floats_with_many_values_are_no_classes(tmp_path):
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    np.savez(tmp_path / "diabetes.npz", x=x, y=y)
    with pytest.raises(BadRequest) as caught:
        ud.federate(str(tmp_path / "diabetes.npz"))
    said = str(caught.value)
    assert "has 214 different values of type float64, which look like measurements" in said
    assert SUPPORTED in said
    assert said.endswith("if they are classes, give them as integers")
    np.savez(tmp_path / "classes.npz", x=x, y=y.astype(int))
    assert len(load(str(tmp_path / "classes.npz")).classes) == 347  # the same numbers as integers are taken


def test_few_whole_valued_floats_are_classes():
    assert whole_numbers(np.arange(100) % 50 * 1.0, "y", "here").tolist() == (np.arange(100) % 50).tolist()
    assert whole_numbers(np.array([[1.0], [0.0]]), "y", "here").tolist() == [1, 0]
    with pytest.raises(BadRequest, match="51 different values"):
        whole_numbers(np.arange(51.0), "y", "here")


@pytest.mark.parametrize("y", [np.eye(3)[np.arange(30) % 3], np.zeros((30, 8, 8), dtype=int), np.linspace(0, 1, 30)])
def test_other_shapes_of_labels_are_refused_with_what_is_supported(tmp_path, y):
    np.savez(tmp_path / "mine.npz", x=np.zeros((30, 4)), y=y)
    with pytest.raises(BadRequest, match=SUPPORTED):
        load(str(tmp_path / "mine.npz"))
    with pytest.raises(BadRequest, match=SUPPORTED):
        ud.Federation.from_clients([(torch.zeros(30, 4), torch.tensor(y))])


def test_the_sentence_is_one():
    assert LABELS.startswith(SUPPORTED)
    assert "\n" not in LABELS
