"""Laws of FedASL."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import weighting


def test_weights_by_hand(server, replies):
    # losses 1, 2, 3, 10: median 2.5; σ = √((9 + 4 + 1 + 36)/4) = √12.5; ασ = 1.7678; βσ = 0.7071
    # |L − med| = 1.5, 0.5, 0.5, 7.5: three are in the good region, the last has d = 7.5
    sigma = 12.5**0.5
    weights = weighting.fedasl().weights(server(), replies(4, loss=[1.0, 2.0, 3.0, 10.0]))
    assert weights.tolist() == pytest.approx([1 / (0.2 * sigma)] * 3 + [1 / 7.5])


def test_hybrid_is_one_minus_the_share(server, replies):
    d = [0.2 * 12.5**0.5] * 3 + [7.5]
    weights = weighting.fedasl(hybrid=True).weights(server(), replies(4, loss=[1.0, 2.0, 3.0, 10.0]))
    assert weights.tolist() == pytest.approx([1 - x / sum(d) for x in d])


def test_equal_losses_and_two_clients_count_alike(server, replies):
    assert weighting.fedasl().weights(server(), replies(3)).tolist() == [1.0, 1.0, 1.0]
    two = weighting.fedasl().weights(server(), replies(2, loss=[0.1, 5.0]))
    assert two[0].item() == pytest.approx(two[1].item())


def test_it_favours_the_median_not_the_lowest(server, replies):
    weights = weighting.fedasl(alpha=0.1).weights(server(), replies(5, loss=[0.0, 1.0, 2.0, 3.0, 4.0]))
    assert weights.argmax() == 2
    assert weights[0] == weights[4]


def test_last_epoch_and_sample_deviation_are_options(server, replies):
    cohort = replies(3, loss=[1.0, 1.0, 1.0], last=[1.0, 2.0, 4.0])
    a, b = (weighting.fedasl(loss="last", ddof=ddof).weights(server(), cohort) for ddof in (0, 1))
    assert not torch.equal(a, b)
    assert weighting.fedasl().weights(server(), cohort).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("values", [{"alpha": -1}, {"beta": 0}, {"loss": "first"}, {"ddof": 2}])
def test_bad_values_are_refused(values):
    with pytest.raises(BadRequest, match="fedasl"):
        weighting.fedasl(**values)
