"""Laws of a mix of weighting rules."""

from __future__ import annotations

import math

import pytest
import torch

from undrift.core import text
from undrift.core.errors import BadRequest
from undrift.methods import naming, weighting
from undrift.methods.naming import method
from undrift.testing import run_parts


def test_shares_of_normalised_weights(server, replies):
    # size: 0.1, 0.9; uniform: 0.5, 0.5; three parts to one
    part = weighting.mix((weighting.size(), weighting.uniform()), (3, 1))
    weights = part.weights(server(), replies(2, n=[1, 9]))
    assert (weights / weights.sum()).tolist() == pytest.approx([0.2, 0.8])


def test_one_rule_is_that_rule(tiny):
    alone = run_parts("fedavg@bound(when=after)", tiny)
    mixed = run_parts("fedavg@mix([bound(when=after), size()], [1, 0])", tiny)
    assert torch.allclose(alone.vector, mixed.vector, rtol=0, atol=1e-6)


def test_messages_of_its_rules_do_not_collide(tiny):
    run = run_parts("fedavg@mix([bound(), feddisco(), bound(when=after)], [1, 1, 1])", tiny, rounds=2)
    assert list(run.setup.method.one("weighting").uplink) == ["0.spread", "1.distance", "2.spread"]
    assert not run.events


def test_a_rule_that_cannot_be_normalised_counts_by_size(server, replies):
    part = weighting.mix((weighting.feddisco(a=9, b=0), weighting.uniform()), (1, 1))
    cohort = replies(2, n=[1, 3], client_messages=[{"0.distance": 1.0}, {"0.distance": 1.0}])
    weights = part.weights(server(), cohort)
    assert (weights / weights.sum()).tolist() == pytest.approx([0.375, 0.625])


def test_a_client_that_a_rule_cannot_score_is_left_out(server, replies):
    part = weighting.mix((weighting.bound(), weighting.uniform()), (1, 1))
    cohort = replies(3, client_messages=[{"0.spread": math.nan}, {"0.spread": 1.0}, {"0.spread": 1.0}])
    weights = part.weights(server(), cohort)
    assert math.isnan(weights[0])
    assert weights[1] == weights[2]


def test_needs_and_measures_are_those_of_its_rules():
    part = weighting.mix((weighting.bound(), weighting.aflama()), (1, 1))
    assert sorted(part.needs) == ["class_logits", "errors", "proxy"]
    assert part.measures == "received"


def test_it_can_be_written_and_read_again():
    part = method("fedavg@mix([size(), bound(radius=0.1)], [0.25, 0.75])").one("weighting")
    assert naming.part("weighting", text.spell(part)) == part
    assert hash(part) == hash(weighting.mix([weighting.size(), weighting.bound(radius=0.1)], [0.25, 0.75]))


@pytest.mark.parametrize(("rules", "shares"), [([], []), ([weighting.size()], [1, 2]), ([weighting.size()], [-1.0]),
                                               ([weighting.size()], [0.0]), (["size"], [1.0])])  # fmt: skip
def test_bad_values_are_refused(rules, shares):
    with pytest.raises(BadRequest, match="mix"):
        weighting.mix(rules, shares)
