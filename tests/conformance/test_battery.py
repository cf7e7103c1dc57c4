"""The battery: what every row must withstand."""

from __future__ import annotations

import json

import pytest
import torch

from undrift.core.errors import BadRequest

ONE_CLASS, ONE_SAMPLE, SICK, CLIENTS = 0, 1, 3, 6


def equal(one, other):
    return torch.equal(one.vector, other.vector) and torch.equal(one.sent, other.sent)


def test_repeating_it_gives_the_same_bits(row, battery, federation, undisturbed):
    assert equal(undisturbed(row), battery(row, federation))


def test_one_sample_and_one_class_clients_take_part(row, undisturbed):
    """Nobody is left out of the table's federation, which has both kinds."""
    outcome = undisturbed(row)
    assert outcome.events == []
    weights = {client for _, client, _ in outcome.notes("weight")}
    assert {ONE_CLASS, ONE_SAMPLE} <= weights


def test_batchnorm_dropout_and_partial_participation(row, battery, federation):
    options = {"model": "norm" if row.model in ("plain", "norm") else f"{row.model}_norm", "cohort": 5}
    if row.batchnorm:
        with pytest.raises(BadRequest, match=row.batchnorm):
            battery(row, federation, **options)
        return
    first, second = (battery(row, federation, **options) for _ in range(2))
    assert equal(first, second)
    assert torch.isfinite(first.vector).all()
    assert first.events == []
    cohorts = first.store.record.all("SELECT cohort FROM rounds")
    assert all(len(json.loads(cohort)) == 5 for (cohort,) in cohorts)


def test_a_cohort_of_one(row, battery, federation):
    options = {"selection": "list([4])", "cohort": None, "rounds": 2}
    if row.alone:
        with pytest.raises(BadRequest, match=row.alone):
            battery(row, federation, **options)
        return
    outcome = battery(row, federation, **options)
    assert outcome.events == []
    assert torch.isfinite(outcome.vector).all()


def test_a_client_of_nan_is_left_out_and_named_as_if_it_had_dropped(row, battery, federation, sick):
    outcome = battery(row, sick())
    rounds = range(outcome.setup.plan.rounds)
    assert [(t, SICK) for t in rounds] == [event[:2] for event in outcome.events if event[1] is not None]
    assert {event[2] for event in outcome.events} <= {"nonfinite", "empty"}
    dropped = battery(row, federation, lose={(t, SICK) for t in rounds})
    assert equal(outcome, dropped)


def test_only_one_client_is_left(row, battery, sick):
    """m = 1 that nobody planned: everybody else is sick."""
    ill = [client for client in range(CLIENTS) if client != 4]
    outcome = battery(row, sick(*ill), rounds=2)
    assert torch.isfinite(outcome.vector).all()
    assert {client for _, client, _, _ in outcome.events if client is not None} == set(ill)


def test_nobody_is_left(row, battery, sick):
    outcome = battery(row, sick(*range(CLIENTS)), rounds=2)
    assert torch.equal(outcome.vector, outcome.setup.runtime.initial) != row.noisy
    if row.noisy:
        return
    assert [event[0] for event in outcome.events if event[1] is None] == [0, 1]
