"""Claims that are in bounds buy no more weight than the cap, and what passes every check does not end a run."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import undrift as ud
from undrift.contract.context import Message
from undrift.contract.declare import Declaration, Malformed, Number
from undrift.contract.job import TrainingStats
from undrift.contract.parts import Job, Objective, Replies, Server
from undrift.core.errors import BadRequest, RunFailed
from undrift.deploy import spec as specs
from undrift.deploy.claims import check_counts, effective_steps, step_range
from undrift.deploy.envelope import Envelope
from undrift.store.record import rows_of

BERLIN, OSLO, TURIN = 100, 99, 98  # node ids

spec = importlib.util.spec_from_file_location("lies", Path(__file__).with_name("lies.py"))
assert spec is not None
assert spec.loader is not None
lies = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lies)


def weights(deployment: Any) -> dict[int, list[float]]:
    """By round: the weights that were used."""
    rows = rows_of(deployment.run, "SELECT round, value FROM notes WHERE name = 'weight' ORDER BY round, client")
    return {round: [float(value) for at, value in rows if at == round] for round, _ in rows}


CLAIMS = {  # (method, what is altered in the handshake, what is altered in every training reply)
    "n = 10**18 at the handshake": ("fedavg", lies.header(n=10**18), None),
    "n = 2**40 at the handshake": (
        "fedavg", lies.header(n=2**40), lies.entry(n=2**40, steps=2**36, effective_steps=None)),
    "spread = 1e-300": ("bound", None, lies.message("weighting.bound", spread=1e-300)),
    "distance = -1e12": ("feddisco", None, lies.message("weighting.feddisco", distance=-1e12)),
    "a loss of 0": ("fedavg+fednolowe(invert=divide)", None, lies.entry(loss=0.0, last=0.0)),
    "more samples than at the handshake": ("fedavg", None, lies.entry(n=10**6)),
}  # fmt: skip


@pytest.mark.parametrize("what", CLAIMS)
def test_no_claim_buys_more_than_half_of_the_weight(what, deploy):
    method, handshake, reply = CLAIMS[what]
    deployment = deploy(method, rounds=2, evaluate_every=9)

    def change(node: int, envelope: Envelope, answer: Envelope) -> Any:
        if node != BERLIN:
            return answer
        if envelope.head["kind"] == "roll":
            return handshake(answer) if handshake else answer
        is_training = envelope.head["orders"][-1]["work"] == "train"
        return reply(answer) if reply and is_training else answer

    deployment.transport.change_reply = change
    deployment.serve()
    used = weights(deployment)
    assert set(used) == {0, 1}
    for shares in used.values():
        assert max(shares) <= 0.5 + 1e-12
        assert sum(shares) == pytest.approx(1)


def test_the_cap_is_recorded_and_the_operator_may_choose_another(deploy):
    deployment = deploy("fedavg", rounds=1)
    assert deployment.serve().setup.plan.weight_cap == 0.5
    assert "weight_cap = 0.5\n" in (deployment.run / "run.toml").read_text()
    assert specs.read(deployment.run).options.weight_cap == 0.5
    assert specs.read(deployment.run).relative_norm == 10.0
    assert deploy("fedavg", weight_cap=0.9).transport.spec.options.weight_cap == 0.9
    with pytest.raises(BadRequest, match="relative_norm must be a number above 1"):
        deploy("fedavg", relative_norm=1.0)


@pytest.mark.parametrize(("momentum", "shrink"), [(0.0, 0.1), (0.9, 0.005), (0.5, 0.3)])
def test_effective_steps_with_a_proximal_term_are_those_that_a_client_counts(momentum, shrink):
    stats = TrainingStats(momentum)
    for steps in range(1, 50):
        stats.add(1, 0.0, 1.0, shrink=shrink)
        assert effective_steps(steps, momentum, shrink) == pytest.approx(stats.effective_steps, rel=1e-9)
    assert effective_steps(2**50, momentum, shrink) == pytest.approx(1 / shrink, rel=1e-6)


def test_steps_are_those_of_the_samples(deploy):
    """1,000 samples in batches of 16: 63 steps an epoch. A site may round its size up by 10 % and skip two steps."""
    plan = deploy("fednova", epochs=2).serve().setup.plan
    assert step_range(plan, 1000) == (2 * 57 - 2, 2 * 63)
    with pytest.raises(Malformed, match="it counts 1 steps; 1000 samples give 112 to 126"):
        check_counts({"n": 1000, "steps": 1, "effective_steps": 1.0}, plan, 0, 1000)


def with_norm() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))


def test_a_negative_variance_is_refused(deploy):
    deployment = deploy("fedavg", rounds=2, model=with_norm)

    def change(reply: Envelope) -> Any:
        vector = reply.arrays["train.vector"].clone()
        vector[-1] = -1e-3  # the last entry of the running variance
        return lies.parcel_of(reply.head, {**reply.arrays, "train.vector": vector})

    deployment.change_reply(BERLIN, 0, change)
    result = deployment.serve()
    ((_, _, kind, detail),) = [event for event in deployment.events() if event[1] == 0]
    assert (kind, detail) == ("malformed", "berlin: the variance 2.running_var is below 0")
    assert (result.setup.plan.layout.part(result.vector, "2.running_var") >= 0).all()


@pytest.mark.parametrize("claim", [1000, -1])
def test_a_counter_that_steps_do_not_explain_is_refused(claim, deploy):
    deployment = deploy("fedavg", rounds=2, model=with_norm)

    def change(reply: Envelope) -> Any:
        lied = {name: torch.full_like(t, claim) for name, t in reply.arrays.items() if ".integers." in name}
        return lies.parcel_of(reply.head, {**reply.arrays, **lied})

    deployment.change_reply(BERLIN, 0, change)
    deployment.serve()
    assert deployment.kinds(0) == [(0, "malformed")]


@pytest.mark.parametrize("rule", ["krum(f=0)", "multikrum(f=0)", "trimmed(share=0.4)"])
def test_a_robust_rule_with_too_few_sites_skips_the_round(rule, deploy):
    deployment = deploy(rule, rounds=2, evaluate_every=9)
    deployment.change_reply(OSLO, 0, lambda reply: None)
    deployment.serve()
    (detail,) = [detail for round, _, kind, detail in deployment.events() if kind == "skipped" and round == 0]
    assert detail.endswith("needs 3 clients and has 2; the model stays as it is")


# ---- server hooks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Touchy(Objective):
    """A part that passes its own checks and fails on one accepted value, and on any pair of 1 and 2."""

    uplink: ClassVar[Declaration] = {"value": Number(0.0, 9.0)}
    downlink: ClassVar[Declaration] = {"total": Number()}

    def init_server(self, server: Server) -> float:
        return 0.0

    def broadcast(self, server: Server) -> Message:
        return {"total": server.memory}

    def after_training(self, job: Job, scratch: Any, state: Any) -> tuple[Any, Message]:
        return state, {"value": 0.0}

    def receive(self, server: Server, replies: Replies) -> None:
        values = [message["value"] for message in replies.client_messages]
        if {1.0, 2.0} <= set(values):
            raise KeyError("one and two")
        server.memory = float("inf") if 3.0 in values else sum(1 / (9 - value) for value in values)


def touchy() -> Any:
    return ud.method("fedavg", Touchy())


@pytest.mark.parametrize(("value", "error"), [(9.0, "ZeroDivisionError"), (3.0, "ArithmeticError")])
def test_a_server_hook_that_fails_on_an_accepted_value_leaves_out_that_site(value, error, deploy):
    """The second value gives a memory from which no next round could start."""
    deployment = deploy(touchy(), rounds=2, evaluate_every=9)
    deployment.change_reply(BERLIN, 0, lies.message("objective.touchy", value=value))
    vector = deployment.serve().vector
    events = [event for event in deployment.events() if event[1] == 0]
    detail = f"with the reply of client 0 the server's part raises {error}; it is left out"
    assert events == [(0, 0, "exception", detail)]
    assert torch.isfinite(vector).all()


def test_a_server_hook_that_fails_on_several_sites_skips_the_round(deploy):
    deployment = deploy(touchy(), rounds=2, evaluate_every=9)

    def change(node: int, envelope: Envelope, reply: Envelope) -> Any:
        if envelope.head["kind"] == "roll" or envelope.head["orders"][-1]["round"] != 0 or node == TURIN:
            return reply
        return lies.message("objective.touchy", value=1.0 if node == BERLIN else 2.0)(reply)

    deployment.transport.change_reply = change
    deployment.serve()
    (detail,) = [detail for round, _, kind, detail in deployment.events() if (round, kind) == (0, "skipped")]
    assert detail == "with these replies the server's part raises KeyError; the model stays as it is"
    assert rows_of(deployment.run, "SELECT COUNT(*) FROM rounds") == [(2,)]


# ---- going back -----------------------------------------------------------------------------------------------------


def nonfinite_from(deployment: Any, round: int, times: int) -> list[int]:
    """From this round on, training is not finite at all sites, until the round has been tried `times` times."""
    left = [3 * times]

    def change(node: int, envelope: Envelope, reply: Envelope) -> Any:
        orders = envelope.head.get("orders", [])
        if orders and orders[-1]["work"] == "train" and orders[-1]["round"] == round and left[0]:
            left[0] -= 1
            return lies.parcel_of(lies.failed(reply, "nonfinite"), {})
        return reply

    deployment.transport.change_reply = change
    return left


@pytest.fixture
def every_round(monkeypatch):
    monkeypatch.setenv("UNDRIFT_CHECKPOINT_EVERY", "1")


def test_a_model_that_makes_training_non_finite_is_rolled_back(deploy, simulate, every_round):
    deployment = deploy(rounds=5)
    nonfinite_from(deployment, 3, 1)
    result = deployment.serve()
    (detail,) = [detail for _, _, kind, detail in deployment.events() if kind == "rollback"]
    assert detail == "training was not finite at 3 of 3 sites in round 3; back to the checkpoint before round 2"
    assert torch.equal(result.vector, simulate(rounds=5).vector)
    assert rows_of(deployment.run, "SELECT round FROM rounds") == [(round,) for round in range(5)]


def test_a_run_that_stays_non_finite_ends_with_a_sentence_and_resumes_from_a_sound_model(deploy, simulate, every_round):
    deployment = deploy(rounds=5)
    nonfinite_from(deployment, 3, 10)
    with pytest.raises(RunFailed, match="and again after 2 rollbacks"):
        deployment.serve()
    nonfinite_from(deployment, 3, 1)
    assert torch.equal(deployment.serve().vector, simulate(rounds=5).vector)


def test_training_that_is_non_finite_from_the_start_says_so(deploy):
    deployment = deploy(rounds=2)
    nonfinite_from(deployment, 0, 10)
    with pytest.raises(RunFailed, match="before any model was combined"):
        deployment.serve()


def test_one_message_in_bounds_of_scaffold_does_not_end_a_run(deploy, every_round):
    """The longest control that the model's norm allows: the server's memory would be useless from then on."""
    deployment = deploy("scaffold", rounds=6, evaluate_every=9)

    def change(reply: Envelope) -> Any:
        name = "train.objective.scaffold.change"
        longest = 5000 * reply.arrays[name] / reply.arrays[name].norm()
        return lies.parcel_of(reply.head, {**reply.arrays, name: longest})

    deployment.change_reply(BERLIN, 1, change)
    result = deployment.serve()
    assert deployment.kinds(0) == [(1, "outlier")]
    assert result.server_state.memories["objective.scaffold"].norm() < 10
    assert torch.isfinite(result.vector).all()
