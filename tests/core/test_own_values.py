"""Values of a user's own clients that do not fit are refused with the client's name, never dropped or rounded."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest

NAN = float("nan")
X, Y = torch.ones(8, 4), torch.arange(8) % 2


def spoiled(x, value):
    x = x.clone()
    x[3] = value
    return x


BAD = {
    "complex inputs": ((X * 1j, Y), "complex"),
    "NaN inputs": ((spoiled(X, NAN), Y), "NaN"),
    "infinite inputs": ((spoiled(X, float("inf")), Y), "NaN or infinite"),
    "float64 beyond float32": ((X.double() * 1e300, Y), "NaN or infinite"),
    "float labels": ((X, Y + 0.5), "labels of type float32"),
    "NaN labels": ((X, spoiled(Y.float(), NAN)), "labels of type float32"),
    "bool labels of test": ((X, Y, X, Y * 1j), "labels of type complex64"),
    "complex test inputs": ((X, Y, X * 1j, Y), "complex"),
    "NaN test inputs": ((X, Y, spoiled(X, NAN), Y), "NaN"),
    "test labels out of range": ((X, Y, X, Y - 1), "labels must lie in 0…"),
    "other test shape": ((X, Y, torch.ones(8, 5), Y), "shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_from_clients_names_the_client(name):
    given, said = BAD[name]
    with pytest.raises(BadRequest, match=rf"client 1.*{said}|{said}.*client 1"):
        ud.Federation.from_clients([(X, Y), given])


@pytest.mark.parametrize("name", BAD)
def test_from_function_names_the_client(name):
    given, said = BAD[name]
    share = 0.0 if len(given) == 4 else 0.2
    federation = ud.Federation.from_function([(X, Y), given].__getitem__, [8, 8], (X, Y), test_share=share)
    with pytest.raises(BadRequest, match=rf"client 1.*{said}|{said}.*client 1"):
        federation.train(1)


@pytest.mark.parametrize("name", [name for name, (given, _) in BAD.items() if len(given) == 2])
def test_from_function_refuses_a_test_set_that_does_not_fit(name):
    given, said = BAD[name]
    with pytest.raises(BadRequest, match=rf"the test set.*{said}"):
        ud.Federation.from_function(lambda client: (X, Y), [8, 8], given)


def test_from_function_refuses_test_labels_out_of_range():
    with pytest.raises(BadRequest, match=r"labels must lie in 0…1; the test set has 0 to 2"):
        ud.Federation.from_function(lambda client: (X, Y), [8], (X, torch.arange(8) % 3), labels=["a", "b"])


def test_what_fits_is_taken_as_before():
    numbers = np.ones((8, 4), dtype=np.int64), np.arange(8, dtype=np.uint8) % 2
    assert ud.Federation.from_clients([numbers]).x.dtype == torch.float32
    federation = ud.Federation.from_function(lambda client: numbers, [8], numbers)
    assert len(federation.train(0)[1]) == 6
