"""Laws of FedFomo: how a client weighs other models, and which models it receives."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from undrift.contract.declare import read
from undrift.core.errors import BadRequest
from undrift.methods import personalize
from undrift.testing import run_parts


def test_fedfomo_weights_by_hand_for_three_clients(job, planned):
    # L(old) = 2 at 0. Models at 3, −4 and 5 with losses 0.5, 3 and 1: w = 1.5/3, −1/4, 1/5 (each distance + 1e-5).
    losses = {0.0: 2.0, 3.0: 0.5, -4.0: 3.0, 5.0: 1.0}
    layout = SimpleNamespace(trainable=lambda vector: vector[:1])
    models = {1: torch.tensor([3.0, 9.0]), 4: torch.tensor([-4.0, 9.0]), 7: torch.tensor([5.0, 1.0])}
    client = job(
        plan=SimpleNamespace(layout=layout),
        losses=lambda vectors, on="train": [losses[one[0].item()] for one in vectors],
    )
    scratch = personalize.fedfomo().before_start(
        client, {"old": torch.zeros(2), "own": torch.ones(2)}, {"models": models}
    )
    assert scratch["raw"] == pytest.approx({1: 0.5, 4: -0.25, 7: 0.2}, abs=1e-5)
    weights = {"1": 5 / 7, "4": 0.0, "7": 2 / 7}
    assert client.notes["weights"] == pytest.approx(weights, abs=1e-5)
    assert scratch["start"].tolist() == pytest.approx([5 / 7 * 3 + 2 / 7 * 5, 5 / 7 * 9 + 2 / 7], abs=1e-4)


def test_fedfomo_keeps_its_own_model_if_no_other_helps(job):
    layout = SimpleNamespace(trainable=lambda vector: vector)
    client = job(
        plan=SimpleNamespace(layout=layout), losses=lambda vectors, on="train": [one.item() for one in vectors]
    )
    own = torch.tensor([0.5])
    state = {"old": torch.zeros(1), "own": own}
    scratch = personalize.fedfomo().before_start(
        client, state, {"models": {3: torch.ones(1), 5: torch.tensor([math.inf])}}
    )
    assert scratch["start"] is own
    assert scratch["raw"][3] < 0
    assert scratch["raw"][5] == 0.0  # not finite counts as nothing
    assert personalize.fedfomo().before_start(client, state, {})["start"] is own


def test_fedfomo_evaluates_on_training_data_if_none_is_held_out(job):
    evaluated_on = []

    def losses(vectors, on="train"):
        evaluated_on.append(on)
        return [math.nan if on == "held" else one.item() for one in vectors]

    layout = SimpleNamespace(trainable=lambda vector: vector)
    client = job(plan=SimpleNamespace(layout=layout), losses=losses)
    personalize.fedfomo().before_start(
        client, {"old": torch.ones(1), "own": torch.ones(1)}, {"models": {1: torch.zeros(1)}}
    )
    assert evaluated_on == ["held", "train"]


def test_fedfomo_holds_out_a_fifth_and_always_the_same(job):
    part = personalize.fedfomo()
    assert [len(part.hold_out(job(n=n))) for n in (1, 4, 5, 24, 100)] == [0, 0, 1, 4, 20]
    assert torch.equal(part.hold_out(job(n=50, round=3)), part.hold_out(job(n=50, round=4)))


def test_fedfomo_sends_the_most_liked_models_that_exist(server):
    shelf = {
        0: {"model": torch.tensor([0.0]), "likes": {"0": 1.0, "3": 2.0, "9": 99.0, "2": -1.0}},
        2: {"model": torch.tensor([2.0]), "likes": {"2": 1.0}}, 3: {"model": torch.tensor([3.0]), "likes": {"3": 1.0}},
        5: {"model": torch.tensor([5.0]), "likes": {"5": 1.0}},
    }  # fmt: skip
    window = server(shelf=shelf)
    assert list(personalize.fedfomo(M=2).message_for(window, 0)["models"]) == [3, 0]  # 9 has no model yet
    assert list(personalize.fedfomo(M=3).message_for(window, 0)["models"]) == [3, 0, 5]  # 0 beats −1
    assert personalize.fedfomo().message_for(server(), 0) == {"models": {}}
    # a new client has no likes: a seeded draw decides, the same one every time
    drawn = list(personalize.fedfomo(M=2).message_for(window, 8)["models"])
    assert drawn == list(personalize.fedfomo(M=2).message_for(window, 8)["models"])


def test_fedfomo_adds_raw_likes_to_a_row_that_starts_as_identity(server, replies):
    window, part = server(), personalize.fedfomo()
    for likes in ({}, {4: -0.5, 1: 0.25}, {4: 0.75}):
        part.receive(window, replies(1, ids=[1], client_messages=[{"likes": likes}]))
    assert window.shelf[1]["likes"] == {"1": 1.25, "4": 0.25}


def test_fedfomo_first_round_is_local_training_on_four_fifths(tiny):
    run = run_parts("fedfomo", tiny, rounds=1)
    assert run.events == []
    initial = run.setup.runtime.initial
    for client in range(4):
        assert torch.equal(run.state(client)["old"], initial)
        assert not torch.equal(run.state(client)["own"], initial)


def test_fedfomo_runs_and_likes_travel(tiny):
    run = run_parts("fedfomo(M=2)", tiny, rounds=4)
    weights = [value for round, _, value in run.notes("weights") if round > 0]
    assert all(len(value) <= 2 for value in weights)
    assert any(sum(value.values()) == pytest.approx(1) for value in weights)
    message = {"likes": {1: 0.5}}
    assert read("fedfomo", personalize.fedfomo().uplink, message, run.setup.plan, torch.clone) == message


def test_bad_values_of_fedfomo_are_refused():
    for values in ({"M": 0}, {"validation": 1.0}):
        with pytest.raises(BadRequest, match="fedfomo: "):
            personalize.fedfomo(**values)
