"""The handshake: a site whose data, labels, key or version do not fit is refused by name, and the others continue."""

from __future__ import annotations

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
        "berlin has samples of shape (1, 9, 9), the deployment's model takes (1, 8, 8)"),
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
    deployment.transport.names = {BERLIN: "oslo"}
    deployment.serve()
    assert any(
        kind == "refused" and "registered for oslo, not for berlin" in detail
        for _, _, kind, detail in deployment.events()
    )


def test_the_first_of_two_nodes_that_claim_a_site_keeps_it(deploy):
    deployment = deploy(rounds=1)
    deployment.transport.configs[97] = deployment.transport.configs[BERLIN]
    deployment.transport.online.add(97)
    deployment.serve()
    assert any(kind == "refused" and "another connected node" in detail for _, _, kind, detail in deployment.events())


def test_another_version_of_undrift_is_refused(deploy):
    deployment = deploy(rounds=1)

    def other_version(node, envelope, reply):
        return Envelope({**reply.head, "version": "9.9"}) if node == OSLO and reply.head["kind"] == "roll" else reply

    deployment.transport.change_reply = other_version
    deployment.serve()
    assert any("oslo was refused: it has undrift 9.9" in detail for _, _, _, detail in deployment.events())
