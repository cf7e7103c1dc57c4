"""Second models in lock-step: what they learn is what a client alone would have taught them, whoever is in the stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from undrift.contract.parts import Objective, Personalize
from undrift.core.errors import RunFailed
from undrift.testing import run_parts, tiny
from undrift.testing.stacks import in_stacks

NETWORKS = {
    "dense": lambda: nn.Sequential(nn.Linear(5, 17), nn.ReLU(), nn.Linear(17, 3)),
    "curved": lambda: nn.Sequential(nn.Linear(5, 17), nn.Tanh(), nn.Linear(17, 3)),
    "batch norm": lambda: nn.Sequential(nn.Linear(5, 17), nn.BatchNorm1d(17), nn.ReLU(), nn.Linear(17, 3)),
}
OWN = {"loss": None, "momentum": 0.9, "weight_decay": 1e-3, "rounds": 2, "batch": 8}
SIZES = [40, 3, 17, 9, 30, 2, 26]


def kept(outcome, name="v"):
    """Every client's second model."""
    states = [outcome.state(client) for client in range(len(SIZES))]
    return torch.stack([state[name] if isinstance(state, dict) else state for state in states])


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("more", [{}, {"clip": 0.05}, {"optimizer": "adam", "lr": 0.01}])
@pytest.mark.parametrize("name", ["apfl", "ditto"])
def test_a_second_models_bits_do_not_depend_on_the_stack(name, more, network):
    federation = tiny(clients=len(SIZES), sizes=SIZES)
    own = {**OWN, "model": NETWORKS[network], "selection": "all", "cohort": None, **more}
    found = [in_stacks(clients, name, federation, **own) for clients in (1, 2, 7, 50)]
    assert all(outcome.setup.plan.lockstep for outcome in found)
    assert all(torch.equal(kept(found[0]), kept(other)) for other in found[1:])
    if network != "batch norm":  # a bias before it has no gradient but rounding, which Adam makes as large as any other
        one_by_one = run_parts(name, federation, **own, lockstep="off")
        assert torch.allclose(kept(found[0]), kept(one_by_one), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_second_model_that_starts_with_the_first_stays_with_it(network):
    """Ditto without its pull, in round 0: both begin at the initial model and see the same batches."""
    federation = tiny(clients=len(SIZES), sizes=SIZES)
    own = {**OWN, "rounds": 1, "model": NETWORKS[network], "selection": "all", "cohort": None}
    found = in_stacks(50, Both(), federation, **own)
    assert torch.equal(kept(found, "second"), kept(found, "first"))


@dataclass(frozen=True)
class Both(Personalize):
    """Keeps both models. `times`: steps of the second one on a batch; `every`: on which batches."""

    times: int = 1
    every: int = 1
    lockstep: ClassVar = True

    def init_client(self, job):
        return {"first": job.initial, "second": job.initial, "batches": 0}

    def before_start(self, job, state, server_message):
        return {"model": job.second_model(job.initial), "batches": 0}

    def after_step(self, batch, job, scratch):
        if scratch["batches"] % self.every == 0:
            for _ in range(self.times):
                scratch["model"].learn(batch)
        scratch["batches"] += 1

    def after_training(self, job, scratch, state):
        return {"first": job.trained, "second": scratch["model"].vector, "batches": scratch["batches"]}, {}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("times", "every"), [(2, 1), (1, 2), (0, 1)])
def test_it_learns_as_often_as_it_is_asked(network, times, every):
    federation = tiny(clients=len(SIZES), sizes=SIZES)
    own = {**OWN, "rounds": 1, "momentum": 0.0, "model": NETWORKS[network], "selection": "all", "cohort": None}
    part = Both(times, every)
    found = [in_stacks(clients, part, federation, **own) for clients in (1, 50)]
    assert torch.equal(kept(found[0], "second"), kept(found[1], "second"))
    wanted = kept(run_parts(part, federation, **own, lockstep="off"), "second")
    assert torch.allclose(kept(found[0], "second"), wanted, rtol=1e-3, atol=1e-4)
    if times == 0:  # nothing moves, BatchNorm's statistics included
        assert torch.equal(kept(found[0], "second"), found[0].setup.runtime.initial.expand(len(SIZES), -1))


@dataclass(frozen=True)
class Broken(Personalize):
    """Adds what is not a number to the gradient of client 1's second model, in its second step."""

    lockstep: ClassVar = True

    def before_start(self, job, state, server_message):
        return {"model": job.second_model(job.received), "batches": 0}

    def after_step(self, batch, job, scratch):
        scratch["batches"] += 1
        model, before = scratch["model"], scratch["model"].P.clone()
        bad = job.client == 1 and scratch["batches"] == 2
        raw = model.learn(batch, plus=torch.full_like(before, torch.nan) if bad else None)
        assert torch.isfinite(raw).all()
        assert torch.equal(model.P, before) == bad

    def after_training(self, job, scratch, state):
        return scratch["model"].vector, {}


@pytest.mark.parametrize("lockstep", ["on", "off"])
def test_a_gradient_that_is_not_finite_counts_as_zero(lockstep):
    federation = tiny(clients=3, sizes=[20, 30, 25])
    own = {**OWN, "rounds": 1, "momentum": 0.0, "weight_decay": 0.0, "model": NETWORKS["dense"]}
    found = run_parts(Broken(), federation, **own, lockstep=lockstep, selection="all", cohort=None)
    assert all(torch.isfinite(found.state(client)).all() for client in range(3))


@dataclass(frozen=True)
class Elsewhere(Personalize, Objective):
    """Learns where, or from what, a second model does not."""

    when: str = "before"
    lockstep: ClassVar = True

    def before_start(self, job, state, server_message):
        scratch = {"model": job.second_model(job.received), "first": None}
        if self.when == "before":
            scratch["model"].learn(None)
        return scratch

    def gradient(self, P, G, batch, job, scratch):
        if self.when == "gradient":
            scratch["model"].learn(batch)

    def after_step(self, batch, job, scratch):
        scratch["first"] = scratch["first"] or batch
        scratch["model"].learn(scratch["first"] if self.when == "old batch" else batch)


@pytest.mark.parametrize("when", ["before", "gradient", "old batch"])
def test_it_learns_from_the_batch_of_its_hook_only(when):
    with pytest.raises(RunFailed, match="a second model learns in `after_step`, from the batch that the hook is given"):
        in_stacks(50, Elsewhere(when), tiny(clients=3), **{**OWN, "rounds": 1, "model": NETWORKS["dense"]})


@dataclass(frozen=True)
class Looks(Objective):
    """Compares the batch with a reference's features, if it has some."""

    lockstep: ClassVar = True

    def before_training(self, job, state, server_message):
        return job.reference(job.received)

    def loss(self, batch, job, reference):
        logits, features = reference(batch)
        assert features is None
        return logits.square().mean()


def test_a_reference_has_features_where_a_part_needs_them():
    """In lock-step and one by one alike. MOON needs them: its laws compare both."""
    own = {**OWN, "rounds": 1, "model": NETWORKS["dense"]}
    found = [run_parts(Looks(), tiny(clients=3), **own, lockstep=lockstep).vector for lockstep in ("on", "off")]
    assert torch.allclose(*found, rtol=1e-4, atol=1e-5)


def test_a_stack_has_room_for_the_second_models():
    own = {**OWN, "rounds": 1, "model": NETWORKS["dense"], "lockstep": "on"}
    plain, second = (run_parts(name, tiny(clients=3), **own).setup.runtime.lockstep for name in ("fedavg", "ditto"))
    vectors = 6 * 4 * 160  # 156 parameters, in whole registers
    assert second.bytes_of(20, 20) - plain.bytes_of(20, 20) == vectors
