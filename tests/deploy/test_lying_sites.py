"""Whatever a site answers, the run finishes. The site is left out by name, and the others' result is that of a run in
which it was absent."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from undrift.contract.job import TrainingStats
from undrift.core.errors import BadRequest
from undrift.deploy import spec as specs
from undrift.deploy.claims import effective_steps
from undrift.deploy.envelope import Envelope

BERLIN, OSLO = 100, 99  # node ids

spec = importlib.util.spec_from_file_location("lies", Path(__file__).with_name("lies.py"))
assert spec is not None
assert spec.loader is not None
lies = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lies)
BEYOND, DIGITS, HUGE, NASTY, Literal = lies.BEYOND, lies.DIGITS, lies.HUGE, lies.NASTY, lies.Literal
entry, without, message, header, text = lies.entry, lies.without, lies.message, lies.header, lies.text
vector, extra, nested, parcel_of, failed = lies.vector, lies.extra, lies.nested, lies.parcel_of, lies.failed
longer = lies.longer
Change = Callable[[Envelope], Any]

SCAFFOLD, BOUND, DISCO, FLOOD, FOMO = (
    "objective.scaffold", "weighting.bound", "weighting.feddisco", "weighting.flood", "personalize.fedfomo",
)  # fmt: skip
# What is altered in the reply to round 0: (method, change, kind of the event).
REPLIES: dict[str, tuple[str, Change, str]] = {
    "loss 1e999": ("fedavg", entry(loss=BEYOND), "malformed"),
    "loss of 5,000 digits": ("fedavg", entry(loss=DIGITS), "malformed"),
    "loss beyond float32": ("fedavg", entry(loss=1e300), "malformed"),
    "loss below 0": ("fedavg", entry(loss=-3.0), "malformed"),
    "last loss below 0": ("fedasl", entry(last=-3.0), "malformed"),
    "loss NaN": ("fedavg", entry(loss=Literal("NaN")), "malformed"),
    "loss null": ("fedavg", entry(loss=None), "nonfinite"),
    "seconds 1e999": ("fedavg", entry(seconds=BEYOND), "malformed"),
    "seconds 10**400": ("fedavg", entry(seconds=HUGE), "malformed"),
    "seconds of 5,000 digits": ("fedavg", entry(seconds=DIGITS), "malformed"),
    "seconds below 0": ("fedavg", entry(seconds=-1.0), "malformed"),
    "n = 2**70": ("fedavg", entry(n=2**70), "malformed"),
    "n = 2**62": ("fedavg", entry(n=2**62), "malformed"),
    "n = 0": ("fedavg", entry(n=0), "malformed"),
    "n = -1": ("fedavg", entry(n=-1), "malformed"),
    "n of 5,000 digits": ("fedavg", entry(n=DIGITS), "malformed"),
    "n true": ("fedavg", entry(n=True), "malformed"),
    "steps 2**70": ("fedavg", entry(steps=2**70), "malformed"),
    "more steps than batches": ("fednova", entry(steps=10**6), "malformed"),
    "steps below 0": ("fedavg", entry(steps=-1), "malformed"),
    "effective steps 0": ("fednova", entry(effective_steps=0), "malformed"),
    "effective steps null": ("fednova", entry(effective_steps=None), "malformed"),
    "effective steps below 0": ("fednova", entry(effective_steps=-2.0), "malformed"),
    "effective steps 1e-30": ("fednova", entry(effective_steps=1e-30), "malformed"),
    "effective steps 1e30": ("fednova", entry(effective_steps=1e30), "malformed"),
    "effective steps 10**400": ("scaffold", entry(effective_steps=10**400), "malformed"),
    "round 10**400": ("fedavg", entry(round=HUGE), "malformed"),
    "metric 1e999": ("fedavg", entry(metrics={"own": {"accuracy": BEYOND}}), "malformed"),
    "metric 10**400": ("fedavg", entry(metrics={"own": {"accuracy": HUGE}}), "malformed"),
    "metric with a nasty name": ("fedavg", entry(metrics={"own": {NASTY: 1.0}}), "malformed"),
    "metrics on nasty data": ("fedavg", entry(metrics={NASTY: {}}), "malformed"),
    "10,000 metrics": ("fedavg", entry(metrics={"own": {f"m{i}": 1 for i in range(10**4)}}), "malformed"),
    "100 dimensions": ("fedavg", vector(shape=lambda n: (n,) + (1,) * 99), "malformed"),
    "a dimension of 2**70": ("fedavg", extra("more", 0, (0, 2**70)), "malformed"),
    "negative dimensions": ("fedavg", vector(shape=lambda n: (-n, -1)), "malformed"),
    "dtype object": ("fedavg", vector(dtype="object"), "malformed"),
    "nasty dtype": ("fedavg", vector(dtype=NASTY), "malformed"),
    "nasty array name, wrong shape": ("fedavg", vector(shape=lambda n: (n, 1), name=NASTY), "malformed"),
    "an array name of 100,000 characters": ("fedavg", extra("a" * 10**5, 1), "malformed"),
    "an array nobody refers to": ("fedavg", extra("labels", 10), "malformed"),
    "ten megabytes nobody declared": ("fedavg", extra("labels", 2_500_000), "malformed"),
    "ten megabytes of header": ("fedavg", header(padding="a" * 10**7), "malformed"),
    "a text of 50,000 characters": ("fedavg", entry(work="a" * 50_000), "malformed"),
    "nested 10,000 deep": ("fedavg", entry(metrics=nested(10_000)), "malformed"),
    "nested 20 deep": ("fedavg", header(replies=nested(20)), "malformed"),
    "a list for a header": ("fedavg", text("[]"), "malformed"),
    "no JSON": ("fedavg", text("{"), "malformed"),
    "nasty text for a header": ("fedavg", text(NASTY), "malformed"),
    "an empty header": ("fedavg", text("{}"), "malformed"),
    "replies as an object": ("fedavg", header(replies={}), "malformed"),
    "replies of null": ("fedavg", header(replies=[None]), "malformed"),
    "another site": ("fedavg", header(site="oslo"), "malformed"),
    "a nasty site": ("fedavg", header(site=NASTY), "malformed"),
    "a nasty field": ("fedavg", header(**{NASTY: 1}), "malformed"),
    "a nasty kind of failure": ("fedavg", entry(failure={"kind": NASTY, "detail": NASTY}), "malformed"),
    "a nasty failure": ("fedavg", lambda r: parcel_of(failed(r, {"kind": "exception", "detail": NASTY}), {}), "malformed"),
    "a failure": ("fedavg", lambda r: parcel_of(failed(r, "exception"), {}), "exception"),
    "effective steps 1e-9 with a proximal term": ("fedprox(0.1)+fednova", entry(effective_steps=1e-9), "malformed"),
    "an update 50 times as long": ("fedavg", longer("train.vector", 50), "outlier"),
    "a control 300 times as long": ("scaffold", longer("train.objective.scaffold.change", 300), "outlier"),
    "a confidence of 1e30": ("flood", message(FLOOD, phi=1e30), "outlier"),
    "a confidence of -1e30": ("flood", message(FLOOD, phi=-1e30), "outlier"),
    "a nasty refusal": (
        "fedavg", lambda r: parcel_of({"kind": "refusal", "site": "berlin", "code": NASTY}, {}), "broken"),
    "a refusal with a sentence": (
        "fedavg", lambda r: parcel_of({"kind": "refusal", "site": "berlin", "sentence": NASTY}, {}), "malformed"),
    "a refusal without a sentence": ("fedavg", lambda r: parcel_of({"kind": "refusal"}, {}), "malformed"),
    "a nasty error of Flower": ("fedavg", lambda r: NASTY, "broken"),
    "no field messages": ("scaffold", without("messages"), "malformed"),
    "no message of scaffold": ("scaffold", message(SCAFFOLD, change=...), "malformed"),
    "no messages at all": ("scaffold+bound", entry(messages={}), "malformed"),
    "a message of null": ("scaffold", entry(messages={SCAFFOLD: None}), "malformed"),
    "a number for a vector": ("scaffold", message(SCAFFOLD, change=1.0), "malformed"),
    "no message of bound": ("bound", entry(messages={}), "malformed"),
    "no spread": ("bound", message(BOUND, spread=...), "malformed"),
    "spread 0": ("bound", message(BOUND, spread=0.0), "malformed"),
    "spread 1e-30": ("bound", message(BOUND, spread=1e-30), "malformed"),
    "spread below 0": ("bound", message(BOUND, spread=-1.0), "malformed"),
    "spread 10**400": ("bound", message(BOUND, spread=HUGE), "malformed"),
    "spread as text": ("bound", message(BOUND, spread=NASTY), "malformed"),
    "a distance below 0": ("feddisco", message(DISCO, distance=-5.0), "malformed"),
    "a distance above ln C": ("feddisco", message(DISCO, distance=1e6), "malformed"),
    "a probability of 7": ("fedavg+flood(score=msp)", message(FLOOD, phi=7.0), "malformed"),
    "a positive GEN": ("fedavg+flood(score=gen)", message(FLOOD, phi=1.0), "malformed"),
    "likes missing": ("fedfomo", message(FOMO, likes=...), "malformed"),
    "likes of client ²": ("fedfomo", message(FOMO, likes={"²": 1.0}), "malformed"),
    "likes of a client of 5,000 digits": ("fedfomo", message(FOMO, likes={"7" * 5000: 1.0}), "malformed"),
}  # fmt: skip


# What is altered in the reply to the handshake. The site is refused, and never connected.
HANDSHAKES: dict[str, Change] = {
    "n = 2**70": header(n=2**70),
    "n = 2**62": header(n=2**62),
    "n = 2**41": header(n=2**41),
    "n = 10**400": header(n=HUGE),
    "n of 5,000 digits": header(n=DIGITS),
    "n = 0": header(n=0),
    "n 1e999": header(n=BEYOND),
    "tests 2**62": header(tests=2**62),
    "tests below 0": header(tests=-1),
    "a nasty name": header(site=NASTY),
    "a name that is a list": header(site=[[]]),
    "nasty labels": header(labels=[NASTY]),
    "a nasty version": header(version=NASTY),
    "a nasty field": header(**{NASTY: 1}),
    "an array": lambda reply: parcel_of(reply.head, {}, labels=("float32", (1,), bytes(4))),
    "an array of 100 dimensions": lambda reply: parcel_of(reply.head, {}, x=("float32", (1,) * 100, bytes(4))),
    "ten megabytes of header": header(padding="a" * 10**7),
    "nested 10,000 deep": header(labels=nested(10_000)),
    "a list": text("[]"),
    "a nasty refusal": lambda r: parcel_of({"kind": "refusal", "site": NASTY, "sentence": NASTY}, {}),
    "a nasty error of Flower": lambda reply: NASTY,
}


@pytest.fixture(scope="module")
def absent(tmp_path_factory, deploy_in):
    """The result of a run in which berlin does not answer in round 0 (or never connects), by method."""
    known: dict[tuple[str, bool], torch.Tensor] = {}

    def run(method: str, ever_there: bool = True) -> torch.Tensor:
        if (method, ever_there) not in known:
            deployment = deploy_in(tmp_path_factory.mktemp("absent"), method, rounds=2, evaluate_every=9)
            deployment.change_reply(BERLIN, 0, lambda reply: None)
            if not ever_there:
                deployment.transport.online.discard(BERLIN)
            known[method, ever_there] = deployment.serve().vector
        return known[method, ever_there]

    return run


def assert_printable(deployment: Any) -> None:
    """Nothing from a site reaches the record or the log raw."""
    for shown in [*deployment.log, *(detail for _, _, _, detail in deployment.events())]:
        assert shown.isprintable(), shown


@pytest.mark.parametrize("what", REPLIES)
def test_a_lie_in_a_reply_leaves_out_its_site_alone(what, deploy, absent):
    method, change, kind = REPLIES[what]
    deployment = deploy(method, rounds=2, evaluate_every=9)
    deployment.change_reply(BERLIN, 0, change)
    vector = deployment.serve().vector
    ((round, _, found, detail),) = [event for event in deployment.events() if event[1] == 0]
    assert (round, found) == (0, kind), detail
    assert detail.startswith("berlin") or kind == "nonfinite"
    assert_printable(deployment)
    assert torch.equal(vector, absent(method))


@pytest.mark.parametrize("what", HANDSHAKES)
def test_a_lie_in_the_handshake_refuses_its_site_alone(what, deploy, absent):
    deployment = deploy("fedavg", rounds=2, evaluate_every=9)

    def change(node, envelope, reply):
        return HANDSHAKES[what](reply) if node == BERLIN and envelope.head["kind"] == "roll" else reply

    deployment.transport.change_reply = change
    vector = deployment.serve().vector
    kinds = [kind for _, kind in deployment.kinds()]
    assert kinds.count("refused") == 1
    assert (0, None, "absent", "berlin did not complete the handshake") in deployment.events()
    assert_printable(deployment)
    assert torch.equal(vector, absent("fedavg", ever_there=False))


def test_a_lie_in_the_last_evaluation_changes_no_model(deploy, simulate):
    deployment = deploy("fedavg", rounds=2, evaluate_every=2)

    def change(node, envelope, reply):
        orders = envelope.head.get("orders", [])
        last = [order["work"] for order in orders] == ["personalize"]
        return entry(seconds=BEYOND, metrics={"own": {NASTY: HUGE}})(reply) if node == BERLIN and last else reply

    deployment.transport.change_reply = change
    assert torch.equal(deployment.serve().vector, simulate("fedavg", rounds=2, evaluate_every=2).vector)
    (detail,) = [detail for _, _, kind, detail in deployment.events() if kind == "malformed"]
    assert detail.startswith("berlin: ")
    assert detail.endswith("it did not get the final model")
    assert_printable(deployment)


def test_two_claims_of_two_to_the_62_do_not_wrap_the_total(deploy):
    deployment = deploy("fedavg", rounds=1, quorum=1)

    def change(node, envelope, reply):
        return header(n=2**62)(reply) if node in (BERLIN, OSLO) and envelope.head["kind"] == "roll" else reply

    deployment.transport.change_reply = change
    result = deployment.serve()
    refused = [detail for _, _, kind, detail in deployment.events() if kind == "refused"]
    assert [detail.split()[0] for detail in sorted(refused)] == ["berlin", "oslo"]
    assert 0 < result.setup.plan.total <= 60


def with_counter() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))


@pytest.mark.parametrize("claim", [2**62, -(2**62)])
def test_a_counter_near_the_end_of_64_bits_is_refused(claim, deploy):
    """The server takes the largest counter, and the next step would add to it."""
    deployment = deploy("fedavg", rounds=2, model=with_counter)

    def change(reply):
        lies = {name: torch.full_like(t, claim) for name, t in reply.arrays.items() if ".integers." in name}
        assert lies
        return parcel_of(reply.head, {**reply.arrays, **lies})

    deployment.change_reply(BERLIN, 0, change)
    result = deployment.serve()
    assert deployment.kinds(0) == [(0, "malformed")]
    assert all(0 < int(counter) < 100 for counter in result.server_state.integers.values())


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.999, 1.0])
def test_effective_steps_are_those_that_a_client_counts(momentum):
    stats = TrainingStats(momentum)
    for steps in range(1, 50):
        stats.add(1, 0.0, 1.0, shrink=0.0)
        assert effective_steps(steps, momentum) == pytest.approx(stats.effective_steps, rel=1e-7)
    assert effective_steps(2**50, momentum) > 0  # at once, whatever a site claims


def test_a_site_that_claims_the_most_samples_does_not_hold_up_the_server(deploy):
    """What the server computes must not grow with a claim."""
    deployment = deploy("fednova", rounds=1)

    def change(node, envelope, reply):
        if node != BERLIN:
            return reply
        if envelope.head["kind"] == "roll":
            return header(n=2**40)(reply)
        return entry(n=2**40, steps=2**36, effective_steps=2**36)(reply)

    deployment.transport.change_reply = change
    deployment.serve()
    assert (0, "malformed") in deployment.kinds(0)


def test_the_operator_limits_the_samples_that_a_site_may_claim(deploy, absent):
    deployment = deploy("fedavg", rounds=2, evaluate_every=9, max_samples={"berlin": 10})
    assert torch.equal(deployment.serve().vector, absent("fedavg", ever_there=False))
    (detail,) = [detail for _, _, kind, detail in deployment.events() if kind == "refused"]
    assert detail.startswith("berlin was refused: it has ")
    assert detail.endswith("at most 10 training samples are accepted")
    assert specs.read(deployment.run).max_samples == {"berlin": 10}


@pytest.mark.parametrize(
    "wrong", [{"rome": 10}, {"berlin": 0}, {"berlin": True}, {"berlin": 1.5}, {"berlin": 2**41}, 10]
)
def test_a_limit_that_makes_no_sense_is_refused(wrong, deploy):
    with pytest.raises(BadRequest, match="max_samples"):
        deploy("fedavg", max_samples=wrong)


def test_a_registered_node_is_refused_under_its_registered_name(deploy):
    deployment = deploy("fedavg", rounds=1)

    def change(node, envelope, reply):
        return header(site="oslo")(reply) if node == BERLIN and envelope.head["kind"] == "roll" else reply

    deployment.transport.change_reply = change
    deployment.serve()
    (detail,) = [detail for _, _, kind, detail in deployment.events() if kind == "refused"]
    assert detail == "berlin was refused: its key is registered for berlin, not for oslo"
