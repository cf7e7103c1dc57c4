"""Samples that are not one tensor: whoever picks rows gets what a list of the samples would give."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core import samples
from undrift.core.errors import BadRequest
from undrift.core.samples import Columns, Ragged

SEQUENCES = [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10]]


def lists(ragged: Ragged) -> list[list[int]]:
    return [ragged.values[a:b].tolist() for a, b in zip(ragged.offsets, ragged.offsets[1:])]


@pytest.mark.parametrize(
    "rows",
    [
        slice(None), slice(1, 3), slice(0, 0), slice(None, None, 2), [3, 0, 0], torch.tensor([2, 1]),
        torch.tensor([True, False, False, True]), np.array([3, 1]), np.array([False, True, True, False]),
    ],
    ids=str,
)  # fmt: skip
def test_rows_of_sequences_are_those_of_the_list(rows):
    numbers = np.arange(4)[np.asarray(rows) if not isinstance(rows, slice) else rows]
    found = Ragged(SEQUENCES, pad=0)[rows]
    assert lists(found) == [SEQUENCES[i] for i in numbers]
    assert len(found) == len(numbers)


def test_a_batch_is_padded_to_its_longest_and_no_further():
    ragged = Ragged(SEQUENCES, pad=0)
    assert ragged[[1, 2]].padded().tolist() == [[4, 0], [5, 6]]
    assert ragged[[1]].padded(3).tolist() == [[4, 0, 0]]
    assert ragged.padded().dtype == torch.int64
    assert Ragged([torch.ones(2, 3), torch.ones(1, 3)], pad=-1.0).padded().shape == (2, 2, 3)


def test_columns_count_samples_and_are_called_by_name():
    x = Columns({"a": torch.arange(4), "b": Ragged(SEQUENCES, pad=0)})
    assert len(x) == 4
    assert dict(**samples.padded(x[[1, 0]]))["b"].tolist() == [[4, 0, 0], [1, 2, 3]]
    assert x[torch.tensor([2])]["a"].tolist() == [2]


def test_joining_is_the_inverse_of_cutting():
    x = Columns({"a": torch.arange(4.0), "b": Ragged(SEQUENCES, pad=0)})
    again = samples.joined([x[:1], x[1:3], x[3:]])
    assert all(torch.equal(a, b) for a, b in zip(samples.leaves(x), samples.leaves(again), strict=True))


def test_arrays_of_a_file_give_the_samples_back():
    x = Columns({"a": torch.arange(4.0), "b": Ragged(SEQUENCES, pad=0)})
    for one in (x, x["b"]):
        again = samples.from_arrays("x", samples.to_arrays("x", one))
        assert all(torch.equal(a, b) for a, b in zip(samples.leaves(one), samples.leaves(again), strict=True))
    assert samples.from_arrays("y", samples.to_arrays("x", x)) is None


def test_outputs_of_unequal_length_are_stacked_beside_their_targets():
    short, long = torch.ones(1, 2, 3), torch.ones(2, 4, 3)
    stacked = samples.stacked_outputs([short, long])
    assert stacked.shape == (3, 4, 3)
    assert stacked[0].sum() == 6  # filled with zeros
    y = samples.aligned(Ragged([[1, 1], [1], [1, 1, 1]], pad=-1), stacked)
    assert y.shape == (3, 4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ragged([[1], [], [2]], pad=0), ["sequence 1", "length 0"]),
        (lambda: Ragged([[1, 2], [3]], pad=2), ["pad value 2", "also a value"]),
        (lambda: Ragged(torch.arange(3), pad=-1, offsets=[0, 2]), ["offsets", "3"]),
        (lambda: Columns({}), ["without a column"]),
        (lambda: Columns({"a": torch.zeros(3), "b": torch.zeros(2)}), ["b has 2", "a has 3"]),
    ],
)
def test_what_is_no_sample_is_refused(make, words):
    with pytest.raises(BadRequest) as refused:
        make()
    assert all(word in str(refused.value) for word in words), refused.value
    assert "\n" not in str(refused.value)


def test_integers_stay_integers_and_the_fingerprint_sees_every_column():
    def federation(shift: int) -> ud.Federation:
        x = {"tokens": torch.arange(12).view(6, 2) + shift, "age": torch.arange(6.0)}
        return ud.Federation.from_clients([(x, torch.arange(6) % 2)] * 2)

    one = federation(0)
    assert one.x["tokens"].dtype == torch.int64
    assert one.x["age"].dtype == torch.float32
    assert one.shape == {"tokens": (2,), "age": ()}
    assert one.fingerprint == federation(0).fingerprint != federation(1).fingerprint
