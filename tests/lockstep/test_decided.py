"""`--lockstep`: when it is on, what is said about it, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import undrift as ud
from undrift.cli.demo import METHODS
from undrift.contract.parts import Objective
from undrift.core.errors import BadRequest
from undrift.experiment.callback import RunCallback
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.federation.federation import Federation
from undrift.round.lockstep import decide
from undrift.round.lockstep.leaves import Unstackable
from undrift.round.lockstep.mapped import unchanged
from undrift.testing import tiny

SMALL = {"data": "digits", "clients": 4, "rounds": 2, "epochs": 1, "out": False, "engine": "inline"}


def why(federation=None, **options):
    return prepare(from_keywords({**SMALL, **options}), federation).plan.lockstep_why


# Works (c) and (d) of `undrift bench`: inputs of a sample, network, samples in a batch.
WORKS = {"c": (784, "logistic", 10), "d": (64, "mlp(100)", 32)}


@pytest.fixture(scope="module", params=WORKS)
def work(request):
    """A federation of the work's shape, and its options."""
    inputs, model, batch = WORKS[request.param]
    x, y, shards = torch.zeros(40, inputs), torch.arange(40) % 10, np.split(np.arange(40), 4)
    labels = [str(label) for label in range(10)]
    return Federation("made up", (x, y), (x, y), shards, labels, shards), {"model": model, "batch": batch}


@pytest.mark.parametrize("name", [*METHODS, "fedprox", "scaffold", "feddyn", "fedlc", "fedrs"])
def test_auto_is_on_for_the_works_of_small_clients(work, name):
    federation, options = work
    assert why(federation, method=name, epochs=5, **options) == "clients in lock-step, as batched products"


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_what_is_decided_does_not_depend_on_the_number_of_threads(work, threads):
    """With several threads products round by their size. Clients train on one."""
    federation, options = work
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert why(federation, **options) == "clients in lock-step, as batched products"
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"model": "mlp(100, norm=batch)", "batch": 1}, "BatchNorm has nothing to learn from batches of one sample"),
        ({"model": "mlp(100, dropout=0.2)"}, r"the module Dropout \(3\) draws random numbers"),
        ({"model": "cnn3(norm=batch)"}, r"the module BatchNorm2d \(1\) keeps statistics of one client"),
        ({"method": "apfl(variant=official)"}, "the part apfl does not declare lockstep = True"),
        ({"method": "fedsam"}, "the part fedsam needs gradient_at"),
        ({"augment": "flip"}, "augmentation draws for one client at a time"),
        ({"loss": "undrift.testing:half_square"}, "the loss is not the plain cross-entropy"),
    ],
)
def test_what_cannot_is_refused_by_on_and_named_by_auto(options, reason):
    with pytest.raises(
        BadRequest, match=f"--lockstep on is not possible: {reason}.*use --lockstep off or leave it out"
    ):
        why(**options, lockstep="on")
    assert "one by one (" in why(**options)


def test_auto_stays_one_by_one_where_nothing_is_gained():
    assert why(model="mlp(600)") == "clients one by one (45,010 parameters are too many to gain from it)"
    assert why(batch=300) == "clients one by one (batches of 300 samples are too large to gain from it)"
    assert why(model="mlp(600)", lockstep="on") == "clients in lock-step, as batched products"
    assert why(lockstep="off") == "clients one by one (asked for)"


def convolutions():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 10))


def test_layers_without_a_stacked_form_run_through_vmap_only_where_it_is_asked_for():
    assert why(model=convolutions) == "clients one by one (the module Conv2d (0) has no stacked form)"
    assert why(model=convolutions, lockstep="on") == "clients in lock-step, as vmap"


class Odd(nn.Module):
    """A network with one peculiarity, which a stack cannot have."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind, self.calls, self.seen, self.all = nn.Linear(64, 10), kind, 0, None, []

    def forward(self, x):
        x = x.flatten(1)
        if self.kind == "counts":
            self.calls += 1
        if self.kind in ("keeps", "keeps and draws"):
            self.seen = x
        if self.kind == "collects":
            self.all.append(x)
        if self.kind in ("draws", "keeps and draws"):
            x = nn.functional.dropout(x, 0.5)
        if self.kind == "compares":
            x = x - x.mean(0)
        if self.kind == "reads" and x.sum() > 0:
            x = -x
        return self.layer(x)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("counts", "the model Odd changes itself when it is called"),
        ("keeps", "the model Odd changes itself when it is called"),
        ("collects", "the model Odd changes itself when it is called"),
        ("draws", "the model Odd cannot be stacked: .*random"),
        ("keeps and draws", "the model Odd cannot be stacked: .*random"),
        ("compares", "the model Odd looks at all samples of a batch at once"),
        ("reads", "the model Odd cannot be stacked: .*data-dependent"),
    ],
)
def test_a_network_that_vmap_would_change_is_refused(kind, reason):
    with pytest.raises(BadRequest, match=f"--lockstep on is not possible: {reason}"):
        why(model=lambda: Odd(kind), lockstep="on")
    assert why(model=lambda: Odd(kind)).startswith("clients one by one (the model Odd")


class Words(nn.Module):
    """Embedded words, less those of the other samples, as a layer of one's own for BatchNorm may do it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(5, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = self.words(x).mean(1)
        return self.head(h - h.mean(0))


def test_a_network_of_words_that_compares_samples_is_refused():
    """Made-up samples differ from each other, those of whole numbers too."""
    made = decide.sample_of(torch.zeros(2, 6, dtype=torch.long), 8)
    assert made.dtype == torch.long
    assert len({tuple(sample) for sample in made.tolist()}) > 4
    federation = tiny(clients=3)
    federation.x = torch.arange(len(federation.x) * 6).view(-1, 6) % 5
    with pytest.raises(BadRequest, match="the model Words looks at all samples of a batch at once"):
        why(federation, model=Words, lockstep="on", data="digits")


def with_hook(inside: bool):
    chain = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))
    chain.register_forward_hook(lambda *_: None)
    return nn.Sequential(chain, nn.Tanh()) if inside else chain


@pytest.mark.parametrize("inside", [False, True])
def test_hooks_of_a_container_keep_a_run_one_by_one(inside):
    assert why(model=lambda: with_hook(inside)).endswith("has hooks)")
    with pytest.raises(BadRequest, match=r"--lockstep on is not possible: the module .* has hooks"):
        why(model=lambda: with_hook(inside), lockstep="on")


def test_the_layer_to_blame_is_named_beside_batchnorm():
    model = lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.PReLU(), nn.Linear(8, 10))  # noqa: E731
    with pytest.raises(BadRequest, match=r"the module PReLU \(3\) has no stacked form"):
        why(model=model, lockstep="on")


def test_activations_in_place_are_stacked_like_others():
    def model(inplace):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU6(inplace=inplace), nn.Linear(8, 10))

    found = [ud.run("fedavg", model=lambda own=own: model(own), **SMALL, lockstep="on") for own in (False, True)]
    assert found[0].summary["model_sha256"] == found[1].summary["model_sha256"]
    assert found[1].setup.plan.lockstep_why == "clients in lock-step, as batched products"


class Scaled(nn.Module):
    """A network that says nothing of its `scale` when it is printed."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(64, 10), scale

    def forward(self, x):
        return self.scale * self.layer(x.flatten(1))


def test_only_equal_networks_share_a_stack():
    def key(**options):
        return prepare(from_keywords({**SMALL, **options})).runtime.lockstep.alike

    assert key(model=lambda: Scaled(1.0)) == key(model=lambda: Scaled(1.0))
    assert key(model=lambda: Scaled(1.0)) != key(model=lambda: Scaled(2.0))
    assert key(model="mlp(8)") == key(model="mlp(8)", seed=3, lr=0.3)
    assert key(model="mlp(8)") != key(model="mlp(9)")


@pytest.mark.parametrize("breaks", [False, True])
def test_what_a_call_changed_is_put_back_also_where_the_call_fails(breaks):
    odd = Odd("keeps")

    def call():
        with unchanged(odd):
            odd(torch.zeros(2, 64))
            odd.more = 1
            odd.all.append(2)
            if breaks:
                raise ValueError("vmap does not take it")

    with pytest.raises(ValueError if breaks else Unstackable):
        call()
    assert odd.seen is None
    assert not hasattr(odd, "more")
    assert odd.all == []


def test_frozen_parameters_and_buffers_belong_to_one_client():
    def frozen():
        module = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
        module[0].weight.requires_grad_(False)
        return module

    with pytest.raises(BadRequest, match="the model has frozen parameters"):
        why(tiny(clients=3), model=frozen, lockstep="on", data="digits")


@pytest.mark.parametrize("given", ["sometimes", "on(bytes=0)", "on(bytes=1e99)", "on(size=3)", "off(bytes=3)"])
def test_other_words_are_refused_with_a_sentence(given):
    with pytest.raises(BadRequest, match="lockstep"):
        why(lockstep=given)


@dataclass(frozen=True)
class Plain(Objective):
    def gradient(self, P, G, batch, job, scratch) -> None:
        G.mul_(0.5)


@dataclass(frozen=True)
class Declared(Objective):
    lockstep: ClassVar = True

    def gradient(self, P, G, batch, job, scratch) -> None:
        G.mul_(0.5)


def test_a_part_of_the_users_own_falls_back_unless_it_declares():
    assert why(method=Plain()) == "clients one by one (the part plain does not declare lockstep = True)"
    assert why(method=Declared()) == "clients in lock-step, as batched products"


def test_a_run_says_how_its_clients_trained(tmp_path):
    options = {**SMALL, "out": str(tmp_path / "run")}
    ud.run(**options)
    written = (tmp_path / "run" / "run.toml").read_text()
    assert 'lockstep = "auto"' in written
    assert 'clients = "clients in lock-step, as batched products"' in written


class Stopped(RunCallback):
    """Ctrl-C after round 1."""

    def on_round(self, round, *_):
        if round == 1:
            raise KeyboardInterrupt


def stopped_run(folder, **options):
    with pytest.raises(KeyboardInterrupt):
        ud.run("scaffold", callback=Stopped(), **{**SMALL, **options, "rounds": 4, "out": folder})


def test_a_run_goes_on_as_it_began(tmp_path, monkeypatch):
    """Also one of a version that trained it one by one, and one whose run.toml says nothing of it."""
    began = "clients one by one (the part objective.scaffold does not declare lockstep = True)"
    with monkeypatch.context() as patch:
        patch.setattr("undrift.experiment.setup.decided", lambda *_: (0, began))
        stopped_run(tmp_path / "old")
    resumed = ud.resume(tmp_path / "old")
    assert resumed.setup.plan.lockstep_why == began
    whole = {
        how: ud.run("scaffold", **{**SMALL, "rounds": 4}, lockstep=how).summary["model_sha256"] for how in ("off", "on")
    }
    assert whole["off"] != whole["on"]
    assert resumed.summary["model_sha256"] == whole["off"]
    stopped_run(tmp_path / "new")
    assert ud.resume(tmp_path / "new").summary["model_sha256"] == whole["on"]


def test_a_run_that_cannot_go_on_as_it_began_is_refused(tmp_path, monkeypatch):
    stopped_run(tmp_path / "run")

    def refused(*_, **__):
        raise Unstackable("the model rounds differently at another place of a stack")

    monkeypatch.setattr(decide, "network_of", refused)
    with pytest.raises(BadRequest, match="trained in lock-step, and here they cannot: the model rounds differently"):
        ud.resume(tmp_path / "run")
