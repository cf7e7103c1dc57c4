"""Only what is declared travels: checked on arrival, without private entries, its bytes counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from undrift.contract.declare import Along, Array, Malformed, Models, Number, Numbers, read, size_in_bytes
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.testing import QUICK

DECLARED = {
    "number": Number(), "classes": Array("classes"), "four": Array(4), "P": Along("P"), "model": Along("model"),
    "models": Models(2), "numbers": Numbers(2),
}  # fmt: skip


@pytest.fixture
def plan(tiny):
    return prepare(from_keywords({**QUICK, "model": tiny.model, "method": "fedavg"}), tiny).plan


@pytest.fixture
def private(plan):
    mask = torch.zeros(plan.layout.n, dtype=torch.bool)
    mask[:3] = True
    return replace(plan, private=mask)


def keep(vector):
    return vector


def arrive(plan, server_message=None, conceal=keep, **message):
    return read("axis.part", DECLARED, message, plan, conceal, server_message)


def test_good_messages_arrive_as_they_are(plan):
    vector = torch.randn(plan.layout.n)
    got = arrive(plan, number=torch.tensor(2.0), classes=torch.ones(3), model=vector, P=vector[: plan.layout.nP],
                 models={4: vector}, numbers={4: 1})  # fmt: skip
    assert got["number"] == 2.0
    assert isinstance(got["number"], float)
    assert torch.equal(got["models"][4], vector)
    assert got["numbers"] == {4: 1.0}
    assert torch.equal(got["model"], vector)


def test_what_arrives_is_a_copy(plan):
    vector = torch.zeros(4)
    got = arrive(plan, four=vector)
    vector += 1
    assert not got["four"].any()


def test_declared_names_may_be_absent(plan):
    assert arrive(plan) == {}


@pytest.mark.parametrize(
    ("message", "word"),
    [
        ({"strange": 1.0}, "does not declare"),
        ({"number": "1"}, "not a number"),
        ({"number": True}, "not a number"),
        ({"number": float("nan")}, "nan"),
        ({"number": float("inf")}, "inf"),
        ({"number": torch.ones(2)}, "not a number"),
        ({"four": [1.0, 2.0, 3.0, 4.0]}, "not a tensor"),
        ({"four": torch.ones(3)}, "shape"),
        ({"four": torch.ones(2, 2)}, "shape"),
        ({"four": torch.ones(4, dtype=torch.long)}, "dtype"),
        ({"four": torch.tensor([1.0, 2.0, torch.inf, 0.0])}, "not finite"),
        ({"classes": torch.ones(4)}, "shape"),
        ({"P": torch.ones(1)}, "shape"),
        ({"models": {1: torch.ones(1)}}, "shape"),
        ({"models": [1]}, "by client id"),
        ({"numbers": {"1": 1.0}}, "by client id"),
        ({"numbers": {1: 1.0, 2: 1.0, 3: 1.0}}, "more than the declared 2"),
    ],
)
def test_what_was_not_declared_so_is_refused_by_name(plan, message, word):
    with pytest.raises(Malformed) as caught:
        arrive(plan, **message)
    assert "axis.part" in str(caught.value)
    assert word in str(caught.value)


def test_a_number_has_a_range_with_slack_for_rounding(plan):
    declared = {"share": Number(0.0, 1.0), "distance": Number(0.0, lambda plan: float(plan.classes))}

    def share(value):
        return read("axis.part", declared, {"share": value}, plan, keep)["share"]

    assert share(1.0 + 1e-7) == 1.0 + 1e-7
    assert share(0) == 0.0
    for value in (-1e-7, 1.1, 10**400):
        with pytest.raises(Malformed, match=r"axis\.part's 'share' is"):
            share(value)
    assert read("axis.part", declared, {"distance": 3.0}, plan, keep) == {"distance": 3.0}
    with pytest.raises(Malformed, match=r"is 3\.1, which is not between 0 and 3"):
        read("axis.part", declared, {"distance": 3.1}, plan, keep)


def test_numbers_speak_only_of_clients_whose_models_were_sent(plan):
    server_message = {"models": {1: None, 2: None}}
    assert arrive(plan, server_message, numbers={1: 0.5}) == {"numbers": {1: 0.5}}
    with pytest.raises(Malformed, match="client 3"):
        arrive(plan, server_message, numbers={3: 0.5})


def test_private_entries_are_cut_out_of_every_vector(private):
    vector = torch.ones(private.layout.n)
    got = arrive(private, conceal=lambda v: torch.where(private.private, -7.0, v), P=vector[: private.layout.nP],
                 model=vector, models={2: vector})  # fmt: skip
    assert got["P"][:3].tolist() == [0, 0, 0]
    assert got["P"][3:].all()
    for model in (got["model"], got["models"][2]):
        assert model[:3].tolist() == [-7, -7, -7]
        assert torch.equal(model[3:], vector[3:])


def test_bytes_are_those_that_travel(plan, private):
    n, nP = plan.layout.n, plan.layout.nP
    assert size_in_bytes({"number": Number()}, plan) == 4
    assert size_in_bytes({"classes": Array("classes"), "four": Array(4)}, plan) == 4 * 7
    assert size_in_bytes({"P": Along("P"), "model": Along("model")}, plan) == 4 * (nP + n)
    assert size_in_bytes({"P": Along("P"), "model": Along("model")}, private) == 4 * (nP + n - 6)
    assert size_in_bytes({"models": Models(2)}, plan) == 8 * (n + 1)  # each with the id it belongs to
