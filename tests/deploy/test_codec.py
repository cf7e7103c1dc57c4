"""A site's replies are not trusted: anything unexpected or malformed is refused with a sentence."""

from __future__ import annotations

import json
import math

import pytest

from undrift.contract.declare import Malformed
from undrift.deploy.envelope import Envelope, parse_envelope
from undrift.deploy.unpacking import unpack_replies
from undrift.round.orders import Order

BERLIN = 100  # node id


def array(name, change):
    """A reply with one array changed."""

    def changed(reply):
        return Envelope(reply.head, {**reply.arrays, name: change(reply.arrays[name])})

    return changed


def entry(change):
    """A reply with its last entry changed in place."""

    def changed(reply):
        head = json.loads(reply.text)
        change(head["replies"][-1])
        return Envelope(head, reply.arrays)

    return changed


MALFORMED = {
    "wrong shape": (array("train.vector", lambda v: v[:-1]), "has shape (609,) instead of (610,)"),
    "wrong dtype": (array("train.vector", lambda v: v.long()), "has dtype int64 instead of float32"),
    "huge update": (array("train.vector", lambda v: v + 1e6), "at most"),
    "non-finite message": (
        array("train.objective.scaffold.change", lambda v: v * math.inf), "has a value that is not finite"),
    "undeclared name": (entry(lambda e: e["messages"]["objective.scaffold"].update(extra=1.0)), "not declared"),
    "unknown part": (entry(lambda e: e["messages"].update({"objective.evil": {}})), "no part of the method"),
    "unexpected field": (entry(lambda e: e.update(labels=[1, 2])), "'labels' is not expected"),
    "another round": (entry(lambda e: e.update(round=7)), "the reply is for train in round 7"),
    "more samples than at the handshake": (entry(lambda e: e.update(n=10**9)), "at the handshake it had 60 samples"),
    "sample count as text": (entry(lambda e: e.update(n="many")), "'n' has type str"),
    "missing array": (entry(lambda e: e.update(vector="absent")), "'absent' is missing"),
    "metrics on unknown data": (entry(lambda e: e.update(metrics={"global": {}})), "metrics on 'global'"),
    "too few replies": (lambda reply: Envelope({**reply.head, "replies": []}, reply.arrays), "0 replies to 1 orders"),
}  # fmt: skip


@pytest.fixture(scope="module")
def first_reply(tmp_path_factory, deploy_in):
    """A site's reply to its first training order, that order, and the server's plan."""
    deployment = deploy_in(tmp_path_factory.mktemp("first_reply"), rounds=1)
    replies: list[Envelope] = []
    deployment.change_reply(BERLIN, 0, lambda reply: replies.append(reply) or reply)
    setup = deployment.serve().setup
    return replies[0], Order("train", 0, 0, setup.runtime.initial, {}), setup.plan


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_reply_is_refused(what, first_reply, wire):
    reply, order, plan = first_reply
    change, sentence = MALFORMED[what]
    unpack_replies(wire(reply), [order], plan, {}, 60, 100.0)  # the unchanged reply is accepted
    with pytest.raises(Malformed) as refused:
        unpack_replies(wire(change(reply)), [order], plan, {}, 60, 100.0)
    assert sentence in str(refused.value)


def test_a_malformed_reply_excludes_only_its_site_from_the_round(deploy):
    deployment = deploy(rounds=2, evaluate_every=9)
    deployment.change_reply(BERLIN, 0, MALFORMED["wrong shape"][0])
    deployment.serve()
    (event,) = [event for event in deployment.events() if event[1] == 0]
    assert event[2:] == ("malformed", "berlin: train.vector has shape (609,) instead of (610,)")


def test_bytes_that_do_not_fit_their_shape_or_are_not_json_are_refused():
    with pytest.raises(Malformed, match="do not fit"):
        parse_envelope("{}", {"x": ("float32", (1000000,), b"1234")})
    with pytest.raises(Malformed, match="dtype object"):
        parse_envelope("{}", {"x": ("object", (1,), b"12345678")})
    for text in ("[]", "{", '{"loss": NaN}', "[" * 100000):
        with pytest.raises(Malformed):
            parse_envelope(text, {})
