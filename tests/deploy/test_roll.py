"""Who may take part: a site whose data, labels, key or version do not fit is refused by name, and the others go on."""

from __future__ import annotations

import pytest

from undrift.deploy.envelope import Envelope
from undrift.deploy.handshake import Handshake, calling
from undrift.deploy.spec import at_server

BERLIN, OSLO = 100, 99  # nodes


REFUSED = {
    "an empty data.py": ("", "berlin's data.py has no function load()"),
    "a data.py that raises": ("raise KeyError('secret')", "berlin's data.py raised KeyError"),
    "no labels": ("def load(): pass", "berlin's data.py has no list LABELS"),
    "another label order": (
        "LABELS = [str(9 - c) for c in range(10)]\ndef load():\n    import numpy as np\n    return np.zeros((4, 8, 8)), np.arange(4)",
        "berlin numbers its labels 9, 8, 7"),
    "other classes than the model": (
        "LABELS = ['cat', 'dog']\ndef load():\n    import numpy as np\n    return np.zeros((4, 8, 8)), np.arange(4) % 2",
        "berlin numbers its labels cat, dog, the deployment 0, 1, 2"),
    "another shape": (
        "LABELS = [str(c) for c in range(10)]\ndef load():\n    import numpy as np\n    return np.zeros((4, 9, 9)), np.arange(4)",
        "berlin has samples of shape (1, 9, 9), the deployment's model takes (1, 8, 8)"),
    "no sample": (
        "LABELS = [str(c) for c in range(10)]\ndef load():\n    import numpy as np\n    return np.zeros((0, 8, 8)), np.arange(0)",
        "berlin has no sample"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_site_is_refused_by_name_with_a_sentence_where_the_person_is(what, deploy, capfd):
    here = deploy()
    text, sentence = REFUSED[what]
    (here.folder / "berlin" / "data.py").write_text(text)
    spec = here.transport.spec
    handshake = Handshake(spec, here.transport, calling(spec, spec.setup(at_server(spec, [1, 1, 1])), "run", 1))
    handshake.wait(0)
    assert handshake.here() == {"oslo", "turin"}
    (event,) = [detail for kind, detail in handshake.said if kind == "refused"]
    assert sentence in event
    assert "secret" not in event
    assert sentence in capfd.readouterr().err


def test_the_others_go_on_without_a_refused_site(deploy):
    here = deploy(rounds=1)
    (here.folder / "berlin" / "data.py").write_text("")
    here.serve()
    assert (0, None, "absent", "berlin did not answer the roll call") in here.events()
    assert [client for _, client in here.metrics("L2")] == [1, 2]


def test_a_node_may_only_speak_for_the_site_its_key_is_registered_for(deploy):
    here = deploy(rounds=1)
    here.transport.names = {BERLIN: "oslo"}
    here.serve()
    assert any(
        kind == "refused" and "registered for oslo, not for berlin" in detail for _, _, kind, detail in here.events()
    )


def test_two_nodes_that_claim_one_site_the_first_keeps_it(deploy):
    here = deploy(rounds=1)
    here.transport.configs[97] = here.transport.configs[BERLIN]
    here.transport.online.add(97)
    here.serve()
    assert any(kind == "refused" and "another node" in detail for _, _, kind, detail in here.events())


def test_another_version_of_undrift_is_refused(deploy, monkeypatch):
    here = deploy(rounds=1)

    def spoil(node, envelope, reply):
        return Envelope({**reply.head, "version": "9.9"}) if node == OSLO and reply.head["kind"] == "roll" else reply

    here.transport.spoil = spoil
    here.serve()
    assert any("oslo was refused: it has undrift 9.9" in detail for _, _, _, detail in here.events())
