"""`batch.gradient_at(P)` is the composition's gradient at another point, and asking for it changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

from undrift.contract.parts import Objective, Personalize
from undrift.core.errors import RunFailed
from undrift.testing import quadratics, run_parts, small_network, tiny


@dataclass(frozen=True)
class Zecho(Objective):
    """Asks at the live point and elsewhere, and changes nothing. Its name puts it behind all shipped objectives."""

    needs: ClassVar = ("gradient_at",)

    def gradient(self, P, G, batch, job, scratch):
        batch.gradient_at(P + 1)
        assert torch.equal(batch.gradient_at(P), G)
        assert torch.equal(batch.gradient_at(batch.P), G)


@dataclass(frozen=True)
class Undeclared(Objective):
    def gradient(self, P, G, batch, job, scratch):
        batch.gradient_at(P)


@dataclass(frozen=True)
class TooEarly(Objective):
    needs: ClassVar = ("gradient_at",)

    def loss(self, batch, job, scratch):
        return batch.gradient_at(batch.P).sum()


@dataclass(frozen=True)
class WrongShape(Objective):
    needs: ClassVar = ("gradient_at",)

    def gradient(self, P, G, batch, job, scratch):
        batch.gradient_at(job.received[:1])


@dataclass(frozen=True)
class AfterTheStep(Personalize):
    """Keeps the composition's gradient at zero, of the last batch."""

    needs: ClassVar = ("gradient_at",)

    def before_start(self, job, state, server_message):
        return {}

    def after_step(self, batch, job, scratch):
        scratch["G"] = batch.gradient_at(torch.zeros_like(batch.P))

    def after_training(self, job, scratch, state):
        return scratch["G"], {}


COMPANY = [
    "fedavg", "fedlc", "flood(T=1)", "flood(T=1, control=random)", "scaffold", "fedprox", "feddyn", "fednp", "moon",
    "objective.moon(head=true)+fednp", "feddecorr", "fedrs", "fedbss(T1=1)", "fedsam", "pfedme",
    "fedrep", "fedper", "fedproto", "fedntd", "apfl", "scaffold+fedsam+fedlc",
]  # fmt: skip


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("text", COMPANY)
def test_at_the_live_point_it_is_the_gradient_itself_and_nothing_changes(text, norm):
    model = {"model": lambda: small_network(5, 3, norm=norm, dropout=0.5), "momentum": 0.9}
    alone, asked = (run_parts(what, tiny(), **model) for what in (text, [text, Zecho()]))
    assert asked.events == []
    assert torch.equal(alone.vector, asked.vector)
    for client in range(4):
        if ("state", client) in alone.server_state.versions:
            assert equal(alone.raw_state(client), asked.raw_state(client))
    assert notes(alone) == notes(asked)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def notes(outcome: Any) -> list[Any]:
    return outcome.store.record.all("SELECT round, client, part, name, value FROM notes ORDER BY rowid")


def test_each_call_counts_as_training_on_the_batch_once_more():
    from undrift.bench.costs import count

    assert count(Zecho()).training == 4 * count("fedavg").training


def test_it_has_every_gradient_hook_of_the_others():
    # after the step: c (0 − o) + μ (0 − 0) with FedProx around the received 0
    federation = quadratics(curvature=[2.0], optimum=[3.0])
    run = run_parts(["fedprox(mu=0.5)", AfterTheStep()], federation, rounds=1, epochs=1)
    assert run.state(0).item() == pytest.approx(-6.0)
    later = run_parts(["fedprox(mu=0.5)", AfterTheStep()], federation, rounds=2, epochs=1)
    received = run.vector.item()
    assert later.state(0).item() == pytest.approx(-6.0 - 0.5 * received)


@pytest.mark.parametrize(("part", "word"), [(Undeclared(), "needs"), (TooEarly(), "gradient"), (WrongShape(), "shape")])
def test_misuse_is_named(part, word):
    with pytest.raises(RunFailed, match=word):
        run_parts(part, tiny(), rounds=1)
