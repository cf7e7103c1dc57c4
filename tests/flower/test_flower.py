"""A real SuperLink and real SuperNodes with TLS and node authentication give the same bits as a simulation, also after
failures."""

from __future__ import annotations

import os
import re
import signal

import pytest
import torch

import undrift as ud
from undrift.cli import command
from undrift.store import trees

pytestmark = pytest.mark.flower
SITES = ("berlin", "oslo", "turin")


def test_a_killed_and_resumed_run_equals_the_simulation_and_every_site_has_its_model(loopback, simulate, capfd):
    """The ServerApp is killed (SIGKILL), and the same command resumes the run."""
    loopback.make(rounds=5).superlink()
    loopback.register(*SITES)
    loopback.nodes(*SITES)
    loopback.run()
    # Killed while the replies to the third order are in flight. A node that is fetching an order when its run dies
    # retries for a minute before it gets anything else. That is Flower's behaviour, and it would cost the node a round.
    loopback.until_round(2)
    loopback.until_all_reply(SITES)
    for process in loopback.processes_of("superlink", "flwr-serverapp"):
        os.kill(process, signal.SIGKILL)
    loopback.kill("run")
    loopback.run()
    loopback.until_finished()
    simulated = simulate(rounds=5)
    assert torch.equal(ud.load(loopback.folder / "run").vector, simulated.vector)
    x = torch.randn(5, 1, 8, 8)
    for number, site in enumerate(SITES):
        models = ud.load(loopback.site_folder(site))
        assert torch.equal(models.model(x), simulated.model(x))
        assert torch.equal(models.personal()(x), simulated.personal(number)(x))
        assert (
            loopback.bytes_sent(site) >= loopback.bytes_received(site) > 0
        )  # replies in flight at the kill were sent, too
    assert "resumed" in [kind for _, _, kind, _ in loopback.events()]
    capfd.readouterr()
    assert command(["deploy", "status", str(loopback.folder / "run")]) == 0
    output = capfd.readouterr().out
    assert "5 of 5 rounds" in output
    assert re.search(r"oslo +5 ", output), output


BAD_REPLIES = """
import json
import torch
from undrift.deploy import client
from undrift.deploy.envelope import Envelope
pack_replies = client.pack_replies
def bad_replies(orders, replies, plan, site):
    envelope, round = pack_replies(orders, replies, plan, site), orders[-1].round
    if round == 0:
        return Envelope(envelope.head, {**envelope.arrays, "train.vector": envelope.arrays["train.vector"] * float("nan")})
    if round == 1:
        return Envelope(envelope.head, {**envelope.arrays, "train.vector": envelope.arrays["train.vector"][:-1]})
    if 2 <= round <= 5:  # the first four lies of tests/deploy/test_lying_sites.py
        head = json.loads(envelope.text)
        head["replies"][-1]["loss"] = "lie"
        envelope.__dict__["text"] = json.dumps(head).replace('"lie"', ["1e999", "7" * 5000, "1e300", "-3.0"][round - 2])
    if round == 7:
        raise RuntimeError("the reply is lost, the state is written")
    return envelope
client.pack_replies = bad_replies
"""


def test_when_sites_fail_the_run_completes_with_the_others_and_no_state_is_lost(loopback):
    """Berlin replies NaN, then in another shape, then lies four times, and later one of its replies is lost. Turin's node is killed and
    comes
    back. Lima has another label order and joins when that is corrected. In the last round the SuperLink is killed."""
    sites = ("berlin", "turin", "lima")
    loopback.make(rounds=9, sites=sites, quorum=1, deadline=60.0, wait=30.0).superlink()
    good = (loopback.folder / "lima" / "data.py").read_text()
    loopback.data_py("berlin", good + BAD_REPLIES)
    loopback.data_py("lima", good.replace("range(10)", "reversed(range(10))"))
    loopback.register(*sites)
    loopback.nodes(*sites)
    loopback.run()
    loopback.until_event("refused", "lima was refused")
    loopback.until_round(6, seconds=400)
    loopback.kill("turin")
    loopback.kill("lima", signal.SIGTERM)
    loopback.data_py("lima", good)
    loopback.node("lima")
    loopback.until_round(7, seconds=250)
    loopback.node("turin")
    loopback.until_round(8, seconds=300)
    loopback.until_all_reply(sites)  # for the reason given in the test above
    loopback.kill("superlink")
    loopback.kill("run")
    loopback.superlink()
    loopback.run(wait=120.0)
    loopback.until_finished(seconds=250)
    result = ud.load(loopback.folder / "run")
    assert result.summary["rounds"] == 9
    events = [(kind, detail) for _, _, kind, detail in loopback.events()]
    for kind, sentence in (
        ("nonfinite", "a nonfinite result"),
        ("malformed", "berlin: train.vector has shape (1209,) instead of (1210,)"),
        ("malformed", "berlin: the header holds 1e999, which is beyond float32"),
        ("malformed", "berlin: the header holds the integer 77777777777777777777…, which has more than 64 bits"),
        ("malformed", "berlin: the header holds 1e300, which is beyond float32"),
        ("malformed", "berlin: it reports the loss -3; the run's loss is at least 0"),
        ("broken", "berlin: an error occurred there; see the site's log"),
        ("refused", "lima was refused: its labels differ from the deployment's; see the site's log"),
        ("absent", "lima did not complete the handshake"),
        ("joined", "lima joined with"),
        ("absent", "turin: its node disconnected before it replied"),
        ("resumed", "from the checkpoint before round"),
    ):
        assert any(k == kind and sentence in detail for k, detail in events), (kind, sentence, events)
    assert "the reply is lost, the state is written" in loopback.log("berlin")
    for site in sites:
        assert (loopback.site_folder(site) / "personal.safetensors").exists()
    # Turin continued with its state, and c is the mean of the committed c_k on the sites' own disks.
    versions = {number: result.server_state.versions["state", number] for number in range(3)}
    assert versions == dict.fromkeys(range(3), 8)
    c = result.server_state.memories["objective.scaffold"]
    states = [loopback.site_folder(site) / "states" / f"{versions[k]:08d}.safetensors" for k, site in enumerate(sites)]
    controls = [trees.load(path.read_bytes())["parts"]["objective.scaffold"] for path in states]
    assert torch.allclose(c, torch.stack(controls).mean(0), atol=1e-5)


@pytest.mark.skipif("UNDRIFT_DATA" not in os.environ, reason="needs the real data sets (UNDRIFT_DATA)")
def test_fashion_mnist_equals_the_simulation_with_a_site_that_only_evaluates(loopback, simulate, capfd):
    """A second such site is not registered at the SuperLink, which therefore rejects it."""
    evaluate_only = ["geneva", "lima"]
    loopback.make(
        "scaffold+fliu", data="fashion-mnist", model="lenet5", rounds=2, evaluate_only=evaluate_only, wait=45.0
    )
    loopback.superlink()
    loopback.register(*SITES, "geneva")
    for site in (*SITES, *evaluate_only):
        loopback.node(site)
    loopback.run()
    loopback.until_finished()
    simulated = simulate(data="fashion-mnist", model="lenet5", rounds=2, clients=5, only=3)
    result = ud.load(loopback.folder / "run")
    assert torch.equal(result.vector, simulated.vector)
    evaluated = result.rows(
        "SELECT stage FROM metrics WHERE client = 3 AND round = 1 AND metric = 'accuracy' ORDER BY stage"
    )
    assert evaluated == [("G",), ("L1",)]
    x = torch.randn(2, 1, 28, 28)
    assert torch.equal(ud.load(loopback.site_folder("geneva")).model(x), simulated.model(x))
    assert any(detail == "lima did not complete the handshake" for *_, detail in loopback.events())
    capfd.readouterr()
    assert command(["deploy", "status", str(loopback.folder / "run")]) == 0
    output = capfd.readouterr().out
    assert re.search(r"lima \(evaluates\) +0 +— ", output), output


def test_an_envelope_survives_the_conversion_to_flower_records():
    import numpy as np
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    from undrift.contract.declare import Malformed
    from undrift.deploy.envelope import Envelope
    from undrift.deploy.wire import to_envelope, to_records

    envelope = Envelope({"kind": "orders", "x": 0.1}, {"v": torch.randn(7), "n": torch.arange(3)})
    again = to_envelope(to_records(envelope))
    assert again.head == envelope.head
    assert all(torch.equal(again.arrays[name], envelope.arrays[name]) for name in ("v", "n"))
    pickled = RecordDict({"head": ConfigRecord({"text": "{}"}), "arrays": ArrayRecord({"v": Array(np.zeros(3))})})
    with pytest.raises(Malformed, match="serialised as"):
        to_envelope(pickled)
    with pytest.raises(Malformed, match="has no record"):
        to_envelope(RecordDict({}))


def test_a_message_that_cannot_be_taken_apart_is_a_reason_and_ends_nothing():
    from types import SimpleNamespace

    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    from undrift.deploy.envelope import Envelope, Parcel
    from undrift.deploy.wire import FlowerTransport, to_records

    good = to_records(Envelope({"kind": "replies"}, {"v": torch.zeros(2)}))
    contents = {
        "good": good,
        "empty": RecordDict({}),
        "no text": RecordDict({"head": ConfigRecord({}), "arrays": ArrayRecord()}),
        "text is a number": RecordDict({"head": ConfigRecord({"text": 7}), "arrays": ArrayRecord()}),
        "head is arrays": RecordDict({"head": ArrayRecord(), "arrays": ArrayRecord()}),
        "arrays are text": RecordDict({"head": ConfigRecord({"text": "{}"}), "arrays": ConfigRecord({})}),
        "raises": None,
    }
    messages = [
        SimpleNamespace(content=content, has_content=lambda: True, metadata=SimpleNamespace(reply_to_message_id=name))
        for name, content in contents.items()
    ]
    found = FlowerTransport(SimpleNamespace(pull_messages=lambda ids: messages)).fetch(list(contents))
    assert isinstance(found.pop("good"), Parcel)
    assert set(found) == set(contents) - {"good"}
    assert all(isinstance(reason, str) and reason for reason in found.values())


def test_the_error_code_of_an_unavailable_node_is_flowers():
    from flwr.common.constant import ErrorCode

    from undrift.deploy.wire import NODE_UNAVAILABLE

    assert NODE_UNAVAILABLE == ErrorCode.NODE_UNAVAILABLE
