"""Laws of A-FLAMA, which is a reconstruction."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.core.vector import Flat
from undrift.methods import weighting
from undrift.testing import run_parts, small_network


@pytest.fixture
def proxied(tiny):
    """The tiny federation with a proxy set made of the first rows of every client."""
    federation = copy.copy(tiny)
    federation.proxy_rows = np.arange(0, 126, 3)
    return federation


def test_weights_follow_accuracy_and_small_shares_are_raised(proxied):
    run = run_parts("aflama", proxied, rounds=1)
    accuracy = [value for _, client, value in run.notes("accuracy") if client is not None]
    shares = [max(value / sum(accuracy), 1 / 8) for value in accuracy]  # w_min = 1/(2m), m = 4
    weights = [value for _, _, value in run.notes("weight")]
    assert weights == pytest.approx([share / sum(shares) for share in shares])
    assert {value for _, _, value in run.notes("status")} == {"reconstruction"}


def test_all_clients_count_the_same_if_none_is_right(server, replies):
    flat = Flat(small_network(5, 3), torch.zeros(2, 5))
    hopeless = server(proxy=(torch.zeros(4, 5), torch.full((4,), 7)), model=lambda vector: flat)  # there is no class 7
    assert weighting.aflama().weights(hopeless, replies(3)).tolist() == [1.0, 1.0, 1.0]


def test_without_a_proxy_set_it_is_refused(tiny):
    with pytest.raises(BadRequest, match="aflama needs a proxy set"):
        run_parts("aflama", tiny)


def test_bad_values_are_refused():
    with pytest.raises(BadRequest, match="aflama"):
        weighting.aflama(floor=2)
