"""Real SuperLink, real SuperNodes, TLS and node authentication: the same bits as a simulation, whatever happens."""

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


def test_killed_in_the_middle_five_rounds_equal_the_simulation_and_every_site_has_its_model(loopback, simulate, capfd):
    """The ServerApp is killed (-9) and the same command goes on."""
    loopback.make(rounds=5).superlink()
    loopback.register(*SITES)
    for site in SITES:
        loopback.node(site)
    loopback.run()
    # Killed while the answers to the third order are on their way. A node that is just fetching an order of a run that has
    # died keeps trying for a minute before it hears anything else, which is Flower's business and would cost it a round.
    loopback.until_round(2)
    loopback.until_answered(SITES)
    for process in loopback.processes_of("superlink", "flwr-serverapp"):
        os.kill(process, signal.SIGKILL)
    loopback.kill("run")
    loopback.run()
    loopback.until_finished()
    simulated = simulate(rounds=5)
    assert torch.equal(ud.load(loopback.folder / "run").vector, simulated.vector)
    x = torch.randn(5, 1, 8, 8)
    for number, site in enumerate(SITES):
        kept = ud.load(loopback.home_of(site))
        assert torch.equal(kept.model(x), simulated.model(x))
        assert torch.equal(kept.personal()(x), simulated.personal(number)(x))
        assert loopback.left(site) >= loopback.counted(site) > 0  # what was in flight when the server died left, too
    assert "resumed" in [kind for _, _, kind, _ in loopback.events()]
    capfd.readouterr()
    assert command(["deploy", "status", str(loopback.folder / "run")]) == 0
    said = capfd.readouterr().out
    assert "5 of 5 rounds" in said
    assert re.search(r"oslo +5 ", said), said


SPOILT = """
import torch
from undrift.deploy import client
from undrift.deploy.parcel import Parcel
whole = client.pack_replies
def spoilt(orders, replies, plan, site):
    parcel, round = whole(orders, replies, plan, site), orders[-1].round
    if round == 0:
        return Parcel(parcel.head, {**parcel.arrays, "train.vector": parcel.arrays["train.vector"] * float("nan")})
    if round == 1:
        return Parcel(parcel.head, {**parcel.arrays, "train.vector": parcel.arrays["train.vector"][:-1]})
    if round == 3:
        raise RuntimeError("the answer is lost, the state is written")
    return parcel
client.pack_replies = spoilt
"""


def test_whatever_sites_do_the_run_completes_with_the_others_and_nothing_is_lost(loopback):
    """Berlin answers NaN, then in another shape, and an answer of it is lost; turin's node is killed and comes back; lima has another
    label order and joins when that is mended; in the last round the SuperLink is killed."""
    sites = ("berlin", "turin", "lima")
    loopback.make(rounds=5, sites=sites, quorum=1, deadline=60.0, wait=30.0).superlink()
    good = (loopback.folder / "lima" / "data.py").read_text()
    loopback.data_py("berlin", good + SPOILT)
    loopback.data_py("lima", good.replace("range(10)", "reversed(range(10))"))
    loopback.register(*sites)
    for site in sites:
        loopback.node(site)
    loopback.run()
    loopback.until_round(2)
    loopback.kill("turin")
    loopback.kill("lima", signal.SIGTERM)
    loopback.data_py("lima", good)
    loopback.node("lima")
    loopback.until_round(3, seconds=150)
    loopback.node("turin")
    loopback.until_round(4, seconds=200)
    loopback.until_answered(sites)  # for the reason above
    loopback.kill("superlink")
    loopback.kill("run")
    loopback.superlink()
    loopback.run(wait=120.0)
    loopback.until_finished(seconds=250)
    result = ud.load(loopback.folder / "run")
    assert result.summary["rounds"] == 5
    events = [(kind, detail) for _, _, kind, detail in loopback.events()]
    for kind, sentence in (
        ("nonfinite", "the client answered with a nonfinite result"),
        ("malformed", "berlin: train.vector has shape (1209,) instead of (1210,)"),
        ("broken", "berlin: RuntimeError; the site's log has the rest"),
        ("refused", "lima was refused: lima numbers its labels 9, 8, 7"),
        ("absent", "lima did not answer the roll call"),
        ("joined", "lima is there with"),
        ("absent", "turin: its node went away before it answered"),
        ("resumed", "from the checkpoint before round"),
    ):
        assert any(k == kind and sentence in detail for k, detail in events), (kind, sentence, events)
    assert "the answer is lost, the state is written" in loopback.log("berlin")
    for site in sites:
        assert (loopback.home_of(site) / "personal.safetensors").exists()
    # Turin came back with the state it had, and c is the mean of the committed c_k on the sites' own disks.
    versions = {number: result.server_state.versions["state", number] for number in range(3)}
    assert versions == dict.fromkeys(range(3), 4)
    c = result.server_state.memories["objective.scaffold"]
    states = [loopback.home_of(site) / "states" / f"{versions[k]:08d}.safetensors" for k, site in enumerate(sites)]
    controls = [trees.load(path.read_bytes())["parts"]["objective.scaffold"] for path in states]
    assert torch.allclose(c, torch.stack(controls).mean(0), atol=1e-5)


@pytest.mark.skipif("UNDRIFT_DATA" not in os.environ, reason="needs the real data sets (UNDRIFT_DATA)")
def test_fashion_mnist_equals_the_simulation_with_a_site_that_only_judges(loopback, simulate, capfd):
    """A second one of these is not registered at the SuperLink, which therefore keeps it out."""
    judges = ["geneva", "lima"]
    loopback.make("scaffold+fliu", data="fashion-mnist", model="lenet5", rounds=2, evaluate_only=judges, wait=45.0)
    loopback.superlink()
    loopback.register(*SITES, "geneva")
    for site in (*SITES, *judges):
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
    assert torch.equal(ud.load(loopback.home_of("geneva")).model(x), simulated.model(x))
    assert any(detail == "lima did not answer the roll call" for *_, detail in loopback.events())
    capfd.readouterr()
    assert command(["deploy", "status", str(loopback.folder / "run")]) == 0
    said = capfd.readouterr().out
    assert re.search(r"lima \(judges\) +0 +— ", said), said


def test_messages_become_flower_records_and_back():
    import numpy as np
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    from undrift.contract.declare import Malformed
    from undrift.deploy.envelope import Envelope
    from undrift.deploy.wire import parcel_of, records

    envelope = Envelope({"kind": "orders", "x": 0.1}, {"v": torch.randn(7), "n": torch.arange(3)})
    again = parcel_of(records(envelope))
    assert again.head == envelope.head
    assert all(torch.equal(again.arrays[name], envelope.arrays[name]) for name in ("v", "n"))
    pickled = RecordDict({"head": ConfigRecord({"text": "{}"}), "arrays": ArrayRecord({"v": Array(np.zeros(3))})})
    with pytest.raises(Malformed, match="serialised as"):
        parcel_of(pickled)
    with pytest.raises(Malformed, match="lacks its record"):
        parcel_of(RecordDict({}))


def test_the_code_of_a_node_that_went_away_is_flowers():
    from flwr.common.constant import ErrorCode

    from undrift.deploy.wire import NODE_UNAVAILABLE

    assert NODE_UNAVAILABLE == ErrorCode.NODE_UNAVAILABLE
