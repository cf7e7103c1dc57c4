"""Counted costs of methods. Every client has n = 20 samples; E is the number of local epochs."""

from __future__ import annotations

import pytest

from undrift.bench import costs
from undrift.bench.costs import count
from undrift.methods.published import PUBLISHED

MODEL = costs.model_bytes()
P = 4 * sum(p.numel() for p in costs.network().parameters())


@pytest.mark.parametrize(
    ("text", "per_round", "per_epoch"),
    [
        ("fedavg", 0, 0),
        ("sampling.flood", 0, 0),  # ASW scores the logits of the pass that trains
        ("sampling.flood(scored_by=received)", 1, 0),
        ("weighting.flood", 1, 0),  # DAC: φ of the trained model
        ("flood", 1, 0),
        ("flood(score=ash-s)", 1, 0),
        ("fedbss", 1, 0),  # the survey
        ("flood(scored_by=received)+fedbss", 2, 0),  # both look at the received model: one pass for both
        ("fedbss@bound", 1, 0),  # likewise
        ("bound", 1, 0),
        ("bound(on=held, share=0.25)", 0.25, 0),
        ("fednolowe", 0, 0),
        ("fedasl", 0, 0),
        ("feddisco", 0, 0),
        ("moon", 0, 2),  # two reference networks on every batch
        ("fednp", 2, 0),  # an EP step over the whole set before and after
        ("fedfomo(M=3)", 0.8, 0),  # own old model and three others on the fifth that is held out
        ("ditto", 0, 0),
        ("finetune", 0, 0),  # evaluation only
    ],
)
def test_passes_over_the_data_are_counted_exactly(text, per_round, per_epoch):
    found = count(text)
    assert (found.passes, found.passes_per_epoch) == (per_round, per_epoch)


@pytest.mark.parametrize(
    ("text", "times"),
    [("fedavg", 1), ("flood", 1), ("apfl", 2), ("ditto", 2), ("fedfomo", 0.8), ("finetune", 1),
     ("fedbss(boundary=ratio, level=0.5)", 0.875)],
)  # fmt: skip
def test_training_is_counted_relative_to_fedavg(text, times):
    """FedBSS with |U| = 10 of 20 and E = 2: α = 1/2 and 1, so 15 and 20 samples of 40. (U has a batch, 10, at least.)"""
    assert count(text).training == times


def test_passes_per_round_and_per_epoch_are_counted_separately():
    """2E + 1 passes of moon@bound."""
    found = count("moon@bound")
    assert (found.passes, found.passes_per_epoch) == (1, 2)


@pytest.mark.parametrize("name", [*PUBLISHED, "moon(head=true)", "fliu(shuffle=true)", "flood+scaffold+fliu@bound"])
def test_the_sent_bytes_are_the_declared_ones(name):
    found = count(name)
    assert (found.up, found.down) == (found.declared_up, found.declared_down)


@pytest.mark.parametrize(
    ("text", "up", "down", "state"),
    [
        ("fedavg", 0, 0, 0),
        ("flood", 4, 0, 0),
        ("scaffold", P, P, P),
        ("feddyn", 0, 0, P),
        ("fliu", 0, 0, MODEL),
        ("apfl", 0, 0, MODEL + 4),
        ("fedfomo", 5 * (4 + 4), 5 * (4 + MODEL), 2 * MODEL),
        ("fednp", 80, 80, 4 * (10 * 10 + 10 + 11 * 1000)),
    ],
)
def test_bytes_by_hand(text, up, down, state):
    found = count(text)
    assert (found.model, found.up, found.down, found.state) == (MODEL, up, down, state)


def test_private_entries_are_client_state_and_are_not_sent():
    head = 4 * (100 * 10 + 10)
    found = count("fedper")
    assert (found.model, found.state) == (MODEL - head, head)


def test_the_servers_shelf_is_counted():
    assert count("fedcda").shelf == 3 * (MODEL + 4) + 4  # three models with their losses, and the choice
    assert count("fedavg").shelf == 0


@pytest.mark.parametrize(
    ("text", "rebuilt"),
    [("fedavg", None), ("flood", None), ("fliu", True), ("local", True), ("fedfomo", True), ("apfl", False),
     ("ditto", False), ("fedper", False), ("fedbn", False), ("fedrep", False), ("finetune", False)],
)  # fmt: skip
def test_whether_the_server_could_rebuild_a_personal_model(text, rebuilt):
    """FLIU sends exactly the model that it keeps. The second model of APFL and Ditto, and private entries, are never sent."""
    assert count(text).rebuilt is rebuilt
