"""`undrift.testing.check(part)` accepts what keeps the contract and names the law that a broken part breaks."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from undrift.contract.declare import Along, Number
from undrift.contract.parts import Combine, Objective, ServerUpdate, Weighting
from undrift.core.text import build
from undrift.methods.naming import part_tables
from undrift.testing import Broken, check

QUICK = {"rounds": 2, "epochs": 1}
COUNTER = {"calls": 0}


# ---- hidden state ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OnItself(Objective):
    strength: float = 0.1

    def gradient(self, P, G, batch, job, scratch):
        object.__setattr__(self, "seen", getattr(self, "seen", 0) + 1)


@dataclass(frozen=True)
class OnItsClass(Objective):
    last: ClassVar[list] = []

    def before_training(self, job, state, server_message):
        self.last.append(job.client)


@dataclass(frozen=True)
class InTheModule(Objective):
    def gradient(self, P, G, batch, job, scratch):
        COUNTER["calls"] += 1
        G.mul_(1 + 1e-3 * (COUNTER["calls"] % 7))


@dataclass(frozen=True)
class InTheModuleAtTheServer(Weighting):
    def weights(self, server, replies):
        COUNTER["calls"] += 1
        return torch.tensor([1.0 + (COUNTER["calls"] % 7) * n for n in replies.n])


# ---- views of what others use ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChangesWhatItReceived(Objective):
    def before_training(self, job, state, server_message):
        job.received.mul_(0.9)


@dataclass(frozen=True)
class ChangesTheGlobalVector(ServerUpdate):
    def step(self, server, mixed, replies):
        return server.vector.lerp_(mixed, 0.5)


@dataclass(frozen=True)
class ChangesItsMemoryInPlace(ServerUpdate):
    def init_server(self, server):
        return torch.zeros(server.plan.layout.n)

    def step(self, server, mixed, replies):
        server.memory.add_(mixed)
        return mixed


@dataclass(frozen=True)
class ChangesTheAnswers(Combine):
    def combine(self, server, replies, weights):
        total = replies.vectors[0].mul_(weights[0])
        for vector, weight in zip(replies.vectors[1:], weights[1:]):
            total.add_(vector, alpha=weight)
        return total


@dataclass(frozen=True)
class KeepsAView(Objective):
    """The parameters of the client that trained last, seen through a view that was never given back."""

    def gradient(self, P, G, batch, job, scratch):
        G.add_(COUNTER.get("view", P) - P, alpha=0.1)
        COUNTER["view"] = job.received[: job.plan.layout.nP]


# ---- messages ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SaysMoreThanItDeclared(Objective):
    uplink: ClassVar = {"loss": Number()}

    def after_training(self, job, scratch, state):
        return state, {"loss": job.stats.mean_loss, "labels": job.counts.float()}


@dataclass(frozen=True)
class SaysItInAnotherShape(Objective):
    uplink: ClassVar = {"control": Along("P")}

    def after_training(self, job, scratch, state):
        return state, {"control": job.trained}


@dataclass(frozen=True)
class TellsMoreThanItDeclared(Objective):
    def broadcast(self, server):
        return {"secret": 1.0}


# ---- the order of clients ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FirstComesFirst(Weighting):
    def weights(self, server, replies):
        return torch.arange(len(replies), 0, -1, dtype=torch.float64)


@dataclass(frozen=True)
class TheMiddleCountsMost(Weighting):
    """The same from behind."""

    def weights(self, server, replies):
        forth = torch.arange(1, len(replies) + 1, dtype=torch.float64)
        return torch.minimum(forth, forth.flip(0))


@dataclass(frozen=True)
class Negative(Weighting):
    def weights(self, server, replies):
        return torch.tensor([float(n) for n in replies.n]) - 25


# ---- draws -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TorchRand(Objective):
    def gradient(self, P, G, batch, job, scratch):
        G.add_(torch.randn_like(G), alpha=1e-3)


@dataclass(frozen=True)
class TorchRandForNothing(Objective):
    """The result is not used, but dropout would draw other masks."""

    def before_training(self, job, state, server_message):
        torch.rand(1)


@dataclass(frozen=True)
class PythonRandom(Objective):
    def gradient(self, P, G, batch, job, scratch):
        G.mul_(1 + 1e-3 * random.random())


@dataclass(frozen=True)
class NumpyRandom(Objective):
    def before_training(self, job, state, server_message):
        return np.random.rand()


@dataclass(frozen=True)
class FreshNumpyGenerator(Objective):
    def gradient(self, P, G, batch, job, scratch):
        G.mul_(1 + 1e-3 * np.random.default_rng().random())


@dataclass(frozen=True)
class ServerRand(Weighting):
    def weights(self, server, replies):
        return torch.rand(len(replies))


# ---- form --------------------------------------------------------------------------------------------------------


@dataclass
class NotFrozen(Objective):
    strength: float = 0.1


@dataclass(frozen=True)
class Child(OnItsClass):
    pass


@dataclass(frozen=True)
class Homeless:
    strength: float = 0.1


# ---- what is lent, and company -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class MovesTheModel(Objective):
    """SAM by hand: it forgets that P is the model that trains."""

    def gradient(self, P, G, batch, job, scratch):
        P.add_(G, alpha=0.1)


@dataclass(frozen=True)
class MovesTheModelAndBack(Objective):
    """Harmless only as long as nothing is rounded."""

    def gradient(self, P, G, batch, job, scratch):
        P.add_(0.1)
        P.sub_(0.1)


@dataclass(frozen=True)
class ChangesTheBatch(Objective):
    def loss(self, batch, job, scratch):
        batch.x.mul_(0.5)
        return batch.logits.sum() * 0


@dataclass(frozen=True)
class SamWithATwin(Objective):
    """The plain loss of a second network: every other part vanishes."""

    rho: float = 0.1

    def before_training(self, job, state, server_message):
        return job.twin(job.received)

    def gradient(self, P, G, batch, job, twin):
        twin.P.copy_(P)
        twin.flat.gradient(twin.loss(twin(batch.x), batch.y), into=G)
        twin.P.copy_(P + self.rho * G / G.norm().clamp(min=1e-12))
        twin.flat.gradient(twin.loss(twin(batch.x), batch.y), into=G)


@dataclass(frozen=True)
class CountsTwice(Objective):
    """Its pull fades with every call: another part's second look would count as a step."""

    def before_training(self, job, state, server_message):
        return {"calls": 0}

    def gradient(self, P, G, batch, job, scratch):
        scratch["calls"] += 1
        G.mul_(1 / scratch["calls"])


@dataclass(frozen=True)
class CountsOnce(Objective):
    def before_training(self, job, state, server_message):
        return {"calls": 0}

    def gradient(self, P, G, batch, job, scratch):
        scratch["calls"] += not batch.again
        G.mul_(1 / scratch["calls"])


@dataclass(frozen=True)
class SamByGradientAt(Objective):
    rho: float = 0.1
    needs: ClassVar = ("gradient_at",)

    def gradient(self, P, G, batch, job, scratch):
        G.copy_(batch.gradient_at(P + self.rho * G / G.norm().clamp(min=1e-12)))


BROKEN = [
    (OnItself(), "hidden state"),
    (OnItsClass(), "hidden state"),
    (InTheModule(), "hidden state"),
    (InTheModuleAtTheServer(), "second time|order of the clients"),
    (ChangesWhatItReceived(), "received model in place"),
    (ChangesTheGlobalVector(), "in place"),
    (ChangesItsMemoryInPlace(), "in place"),
    (ChangesTheAnswers(), "answers in place"),
    (KeepsAView(), "hidden state"),
    (SaysMoreThanItDeclared(), "does not declare"),
    (SaysItInAnotherShape(), "shape"),
    (TellsMoreThanItDeclared(), "does not declare"),
    (FirstComesFirst(), "order of the clients"),
    (TheMiddleCountsMost(), "order of the clients"),
    (Negative(), "negative"),
    (TorchRand(), "global generator"),
    (TorchRandForNothing(), "global generator"),
    (PythonRandom(), "global generator"),
    (NumpyRandom(), "global generator"),
    (FreshNumpyGenerator(), "outside its streams"),
    (ServerRand(), "global generator"),
    (MovesTheModel(), "changes P in `gradient`"),
    (MovesTheModelAndBack(), "changes P in `gradient`"),
    (ChangesTheBatch(), "changes batch.x in `loss`"),
    (SamWithATwin(), "fedlc has no effect beside"),
    (CountsTwice(), "a second time"),
    (NotFrozen(), "frozen dataclass"),
    (Child(), "final"),
    (Homeless(), "axis"),
]


@pytest.mark.parametrize(("part", "law"), BROKEN, ids=lambda value: type(value).__name__)
def test_a_broken_part_is_refused_with_the_law_it_breaks(part, law):
    COUNTER.clear()
    COUNTER["calls"] = 0
    with pytest.raises(Broken, match=law):
        check(part, **QUICK)


@pytest.mark.parametrize("part", [CountsOnce(), SamByGradientAt()])
def test_nothing_vanishes_in_company(part):
    check(part, **QUICK)


@dataclass(frozen=True)
class Good(Weighting):
    """Uses most of what a part may use."""

    power: float = 0.5
    uplink: ClassVar = {"drift": Number()}

    def init_server(self, server):
        return {"drift": 1.0}

    def after_training(self, job, scratch, state):
        noise = torch.rand((), generator=job.stream("noise")).item()
        return {"rounds": (state or {"rounds": 0})["rounds"] + 1}, {
            "drift": (job.trained - job.received).norm() + noise
        }

    def weights(self, server, replies):
        drift = torch.tensor([message["drift"] for message in replies.client_messages], dtype=torch.float64)
        server.memory = {"drift": drift.mean().item()}
        return (server.memory["drift"] / drift) ** self.power


def test_a_good_part_is_accepted():
    check(Good(), **QUICK)


SHIPPED = [(axis, name) for axis, table in part_tables().items() for name in table]
REQUIRED = {"mix": "mix([size(), bound()], [0.5, 0.5])", "named": 'named("*bias")', "fedlaw": "fedlaw(epochs=1)"}
VARIANTS = [
    ("personalize", "fliu(shuffle=true)"), ("personalize", "apfl(variant=official)"),
    ("sampling", "flood(T=1, control=random)"), ("sampling", "flood(T=1, scored_by=received, score=ash-b)"),
    ("weighting", "flood(phi=permuted)"), ("weighting", "flood(score=ash-b)"),
    ("sampling", "fedbss(T1=0, order=matched)"), ("objective", "fedprox(adaptive=true)"),
    ("objective", "scaffold(scaled=true, normalise=true)"), ("objective", "feddyn(alpha=0.5)"),
    ("server", "fedmr(T1=0)"), ("server", "fedmr(T1=0, unit=module)"),
    ("sampling", "flood(T=1)"), ("sampling", "fedbss(T1=0)"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("axis", "name"), [*SHIPPED, *VARIANTS])
def test_every_shipped_part_is_accepted(axis, name):
    check(build(axis, REQUIRED.get(name, name), part_tables()[axis]))
