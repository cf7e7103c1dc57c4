"""What a site sends is read as a stranger's: whatever was not asked for, or does not fit, is refused with a sentence."""

from __future__ import annotations

import json
import math

import pytest

from undrift.contract.declare import Malformed
from undrift.deploy.codec import unpack_replies
from undrift.deploy.envelope import Envelope, opened
from undrift.round.orders import Order

BERLIN = 100  # its node


def spoilt(name, value):
    def change(reply):
        arrays = {**reply.arrays, name: value(reply.arrays[name])}
        return Envelope(reply.head, arrays)

    return change


def head(change):
    def spoil(reply):
        words = json.loads(reply.text)
        change(words["replies"][-1])
        return Envelope(words, reply.arrays)

    return spoil


BROKEN = {
    "a wrong shape": (spoilt("train.vector", lambda v: v[:-1]), "has shape (609,) instead of (610,)"),
    "a wrong dtype": (spoilt("train.vector", lambda v: v.long()), "has dtype int64 instead of float32"),
    "an update without end": (spoilt("train.vector", lambda v: v + 1e6), "at most"),
    "a message that is not finite": (
        spoilt("train.objective.scaffold.change", lambda v: v * math.inf), "has a value that is not finite"),
    "a name nobody declared": (head(lambda w: w["messages"]["objective.scaffold"].update(extra=1.0)), "not declared"),
    "a part nobody asked for": (head(lambda w: w["messages"].update({"objective.evil": {}})), "no part of the method"),
    "a field nobody asked for": (head(lambda w: w.update(labels=[1, 2])), "which nobody asked for"),
    "another round": (head(lambda w: w.update(round=7)), "the answer is for train in round 7"),
    "more samples than it has": (head(lambda w: w.update(n=10**9)), "at the roll call there were"),
    "no samples as text": (head(lambda w: w.update(n="many")), "n is str"),
    "an array that did not come": (head(lambda w: w.update(vector="elsewhere")), "did not come along"),
    "a verdict by another name": (head(lambda w: w.update(metrics={"global": {}})), "it evaluates on"),
    "too few answers": (lambda reply: Envelope({**reply.head, "replies": []}, reply.arrays), "0 answers came to"),
}  # fmt: skip


@pytest.fixture(scope="module")
def answered(tmp_path_factory, deploy_in):
    """A site's whole answer to its first training order, and what the server needs to read it."""
    here = deploy_in(tmp_path_factory.mktemp("answered"), rounds=1)
    replies: list[Envelope] = []
    here.spoil(BERLIN, 0, lambda reply: replies.append(reply) or reply)
    setup = here.serve().setup
    return replies[0], Order("train", 0, 0, setup.runtime.initial, {}), setup.plan


@pytest.mark.parametrize("what", BROKEN)
def test_the_border_refuses(what, answered, wire):
    reply, order, plan = answered
    change, sentence = BROKEN[what]
    unpack_replies(wire(reply), [order], plan, {}, 60, 100.0)  # as it came, it is fine
    with pytest.raises(Malformed) as refused:
        unpack_replies(wire(change(reply)), [order], plan, {}, 60, 100.0)
    assert sentence in str(refused.value)


def test_a_broken_answer_costs_the_site_its_round_and_nobody_else(deploy):
    here = deploy(rounds=2, evaluate_every=9)
    here.spoil(BERLIN, 0, BROKEN["a wrong shape"][0])
    here.serve()
    (event,) = [event for event in here.events() if event[1] == 0]
    assert event[2:] == ("malformed", "berlin: train.vector has shape (609,) instead of (610,)")


def test_bytes_that_do_not_fit_their_shape_or_are_no_json_are_refused():
    with pytest.raises(Malformed, match="do not fit"):
        opened("{}", {"x": ("float32", (1000000,), b"1234")})
    with pytest.raises(Malformed, match="dtype object"):
        opened("{}", {"x": ("object", (1,), b"12345678")})
    for text in ("[]", "{", '{"loss": NaN}', "[" * 100000):
        with pytest.raises(Malformed):
            opened(text, {})
