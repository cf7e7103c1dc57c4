"""The handshake: a site whose data, labels, key or version do not fit is refused by name, and the others continue."""

from __future__ import annotations

import tomllib

import pytest

from undrift.deploy.codes import REFUSALS
from undrift.deploy.envelope import Envelope
from undrift.deploy.handshake import Handshake, handshake_request
from undrift.deploy.spec import server_federation

BERLIN, OSLO = 100, 99  # node ids


REFUSED = {
    "an empty data.py": ("", "berlin's data.py has no function load()"),
    "a data.py that raises": ("raise KeyError('secret')", "berlin's data.py raised KeyError"),
    "no labels": ("def load(): pass", "berlin's data.py has no list LABELS"),
    "another label order": (
        "LABELS = [str(9 - c) for c in range(10)]\ndef load():\n    import numpy as np\n    return np.zeros((4, 8, 8)), np.arange(4)",
        "berlin's labels are 9, 8, 7"),
    "other classes than the model": (
        "LABELS = ['cat', 'dog']\ndef load():\n    import numpy as np\n    return np.zeros((4, 8, 8)), np.arange(4) % 2",
        "berlin's labels are cat, dog, the deployment's 0, 1, 2"),
    "another shape": (
        "LABELS = [str(c) for c in range(10)]\ndef load():\n    import numpy as np\n    return np.zeros((4, 9, 9)), np.arange(4)",
        "berlin has samples of shape (1, 9, 9), the deployment's model takes (1, 8, 8); give such samples, or make a deployment for these"),
    "no sample": (
        "LABELS = [str(c) for c in range(10)]\ndef load():\n    import numpy as np\n    return np.zeros((0, 8, 8)), np.arange(0)",
        "berlin has no sample"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_site_is_refused_by_name_and_its_own_log_says_why(what, deploy, capfd):
    deployment = deploy()
    text, sentence = REFUSED[what]
    code = "labels" if "labels are" in sentence else "shape" if "shape" in sentence else "data"
    (deployment.folder / "berlin" / "data.py").write_text(text)
    spec = deployment.transport.spec
    handshake = Handshake(
        spec, deployment.transport, handshake_request(spec, spec.setup(server_federation(spec, [1, 1, 1])), "run", 1)
    )
    handshake.wait_for_sites(0)
    assert handshake.connected() == {"oslo", "turin"}
    (event,) = [detail for kind, detail in handshake.pending_events if kind == "refused"]
    assert event == f"berlin was refused: {REFUSALS[code]}; see the site's log"
    assert sentence in capfd.readouterr().err


def test_the_others_continue_without_a_refused_site(deploy):
    deployment = deploy(rounds=1)
    (deployment.folder / "berlin" / "data.py").write_text("")
    deployment.serve()
    assert (0, None, "absent", "berlin did not complete the handshake") in deployment.events()
    assert [client for _, client in deployment.metrics("L2")] == [1, 2]


def test_a_node_may_only_speak_for_the_site_its_key_is_registered_for(deploy):
    deployment = deploy(rounds=1)
    deployment.transport.names |= {BERLIN: "oslo"}
    deployment.serve()
    assert any(
        kind == "refused" and "registered for oslo, not for berlin" in detail
        for _, _, kind, detail in deployment.events()
    )


def refusals(deployment):
    return [detail for _, _, kind, detail in deployment.events() if kind == "refused"]


def test_a_node_without_a_registered_name_speaks_for_nobody(deploy):
    deployment = deploy(rounds=1)
    deployment.transport.names.pop(BERLIN)
    deployment.serve()
    (sentence,) = refusals(deployment)
    assert sentence.startswith("berlin was refused: the key of node 100 is registered without a name; ")
    assert "--name berlin" in sentence
    assert [client for _, client in deployment.metrics("L2")] == [1, 2]


def test_the_operator_may_waive_names_and_the_record_says_so(deploy):
    deployment = deploy(rounds=1, unnamed_nodes=True)
    deployment.transport.names = {}
    deployment.serve()
    assert refusals(deployment) == []
    assert [client for _, client in deployment.metrics("L2")] == [0, 1, 2]
    assert tomllib.loads((deployment.run / "run.toml").read_text())["deploy"]["unnamed_nodes"] is True
    assert (0, None, "waived", "nodes whose keys have no registered name may speak for any site") in deployment.events()


def test_names_are_required_by_default_and_the_record_says_so(deploy):
    deployment = deploy(rounds=1)
    deployment.serve()
    assert tomllib.loads((deployment.run / "run.toml").read_text())["deploy"]["unnamed_nodes"] is False
    assert "waived" not in [kind for _, kind in deployment.kinds()]


SECOND = 97  # another node that claims berlin


def duplicate(deployment, name):
    deployment.transport.configs[SECOND] = deployment.transport.configs[BERLIN]
    deployment.transport.names[SECOND] = name


def test_a_second_key_with_a_sites_name_is_refused_by_name(deploy):
    deployment = deploy(rounds=1)
    duplicate(deployment, "berlin")
    deployment.transport.online.add(SECOND)
    deployment.serve()
    first, second = sorted([BERLIN, SECOND])  # nodes are asked in this order
    (sentence,) = refusals(deployment)
    assert sentence.startswith(
        f"berlin was refused: node {second} claims berlin, and node {first} speaks for it; unregister the one"
    )


def test_a_second_key_does_not_take_a_site_over_while_the_first_is_away(deploy):
    deployment = deploy(rounds=4)
    duplicate(deployment, "berlin")

    def swap(transport, node, envelope):
        orders = envelope.head.get("orders", [])
        if orders and orders[-1]["round"] == 1:
            transport.online = transport.online - {BERLIN} | {SECOND}

    deployment.transport.before_send = swap
    deployment.serve()
    assert all("node 97 claims berlin, and node 100 speaks for it" in sentence for sentence in refusals(deployment))
    assert refusals(deployment)
    assert not [node for node, envelope in deployment.transport.down if node == SECOND and "orders" in envelope.head]


def test_the_first_of_two_unnamed_nodes_keeps_the_site(deploy):
    deployment = deploy(rounds=1, unnamed_nodes=True)
    deployment.transport.names = {}
    deployment.transport.configs[SECOND] = deployment.transport.configs[BERLIN]
    deployment.transport.online.add(SECOND)
    deployment.serve()
    assert len(refusals(deployment)) == 1
    assert "claims berlin" in refusals(deployment)[0]


def test_another_version_of_undrift_is_refused(deploy):
    deployment = deploy(rounds=1)

    def other_version(node, envelope, reply):
        return Envelope({**reply.head, "version": "9.9"}) if node == OSLO and reply.head["kind"] == "roll" else reply

    deployment.transport.change_reply = other_version
    deployment.serve()
    assert any("oslo was refused: it has undrift 9.9" in detail for _, _, _, detail in deployment.events())


def test_a_site_that_upgrades_in_mid_federation_joins_again(deploy):
    """The server has the new version already. Oslo has not, until it restarts its node after round 1."""
    deployment = deploy(rounds=4)
    transport = deployment.transport

    def old_version(node, envelope, reply):
        old = node == OSLO and not transport.since.get(OSLO)
        return Envelope({**reply.head, "version": "0.0.9"}) if old and reply.head["kind"] == "roll" else reply

    def upgrade(transport, node, envelope):
        orders = envelope.head.get("orders", [])
        if orders and orders[-1]["round"] == 1:
            transport.since[OSLO] = "restarted"

    transport.change_reply, transport.before_send = old_version, upgrade
    deployment.serve()
    (sentence,) = refusals(deployment)
    assert sentence.startswith("oslo was refused: it has undrift 0.0.9, the server ")
    trained = [round for round, site in deployment.metrics("L2") if site == 1]
    assert trained == [3]  # rounds 1 and 3 are evaluated; oslo joined after round 1's orders had left
    assert (1, "absent") in deployment.kinds(1)
