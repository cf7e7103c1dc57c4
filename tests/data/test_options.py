"""A part of a data set, by its options."""

from __future__ import annotations

import numpy as np
import pytest

from undrift.core.errors import BadRequest
from undrift.data import available, load
from undrift.data.options import part_of


def arrays(train=12, test=6):
    return {
        "x_train": np.arange(train), "y_train": np.repeat(np.arange(3), train // 3), "domain_train": np.arange(train) // 6,
        "x_test": np.arange(test), "y_test": np.repeat(np.arange(3), test // 3), "classes": np.arange(3),
    }  # fmt: skip


def test_a_part_is_evenly_spaced_and_keeps_samples_labels_and_domains_together():
    part = part_of("d", arrays(), train=6)
    assert part["x_train"].tolist() == [0, 2, 4, 6, 8, 10]
    assert part["y_train"].tolist() == [0, 0, 1, 1, 2, 2]  # data in the order of their classes keep all of them
    assert part["domain_train"].tolist() == [0, 0, 0, 1, 1, 1]
    assert np.array_equal(part["x_test"], np.arange(6))
    assert len(part["classes"]) == 3


def test_all_samples_are_the_data_set():
    whole, part = arrays(), part_of("d", arrays(), train=12, test=6)
    assert all(np.array_equal(part[key], whole[key]) for key in whole)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"test": 0}, "test of d must be a whole number of at least 1, not 0"),
        ({"train": 13}, "d has 12 train samples, and 13 were asked for; ask for 12 or fewer"),
    ],
)
def test_a_part_that_cannot_be_is_refused(options, reason):
    with pytest.raises(BadRequest, match=reason):
        part_of("d", arrays(), **options)


@pytest.mark.data
def test_a_part_of_cifar_10_has_every_class():
    part = load("cifar-10(train=1000, test=500)")
    assert available("cifar-10(train=1000)")
    assert (part.x_train.shape, part.x_test.shape) == ((1000, 3, 32, 32), (500, 3, 32, 32))
    assert np.bincount(part.y_train, minlength=10).min() > 70
