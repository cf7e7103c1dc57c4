"""A lying server learns no more than the site's policy says, and everything that leaves is in the site's own log."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import Any

import pytest
import torch

from undrift.core.errors import BadRequest, RunFailed
from undrift.deploy import client
from undrift.deploy.check import site as check_site
from undrift.deploy.envelope import Envelope
from undrift.deploy.policy import Refused, rounded_up
from undrift.store.record import rows_of

BERLIN, OSLO, TURIN = 100, 99, 98  # node ids
NODES = {"berlin": BERLIN, "oslo": OSLO, "turin": TURIN}


def left(deployment: Any, site: str) -> list[dict[str, Any]]:
    """The lines of the site's log of what left it."""
    logs = (deployment.folder / site / "undrift").glob("*/left.jsonl")
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def received(deployment: Any, site: str) -> list[int]:
    """The bytes that the server counted."""
    lines = map(json.loads, (deployment.run / "border.jsonl").read_text().splitlines())
    return [line["bytes"] for line in lines if line["site"] == site and line["way"] == "up"]


def policy(deployment: Any, site: str, text: str) -> None:
    (deployment.folder / site / "policy.toml").write_text(text)


def metric_names(deployment: Any, number: int) -> set[str]:
    return {name for (name,) in rows_of(deployment.run, "SELECT metric FROM metrics WHERE client = ?", (number,))}


def ask(deployment: Any, envelope: Envelope, **fields: Any) -> Envelope:
    """Berlin's reply to an order that a lying server has changed."""
    head = json.loads(envelope.text)
    head["orders"][-1].update(fields)
    transport = deployment.transport
    return client.handle(transport.spec, transport.configs[BERLIN], Envelope(head, envelope.arrays))


def orders_of(deployment: Any, round: int) -> Envelope:
    return next(
        envelope for node, envelope in deployment.transport.down
        if node == BERLIN and envelope.head["kind"] == "orders" and envelope.head["orders"][-1]["round"] == round
        and envelope.head["orders"][-1]["work"] == "train"
    )  # fmt: skip


# ---- metrics ---------------------------------------------------------------------------------------------------------


def test_accuracy_and_loss_leave_by_default_and_a_recall_only_with_the_sites_word(deploy):
    deployment = deploy("fedavg", rounds=2, evaluate_every=1)
    policy(deployment, "oslo", 'metrics = ["accuracy", "recall:3"]')
    deployment.serve()
    assert metric_names(deployment, 0) == metric_names(deployment, 2) == {"accuracy", "loss"}
    assert metric_names(deployment, 1) <= {"accuracy", "recall:3"}
    assert not any("recall" in e.text or "f1" in e.text for node, e in deployment.transport.up if node != OSLO)


# ---- errors ----------------------------------------------------------------------------------------------------------

SECRET = "Jane Doe"  # what no message may hold
LEAKS = {
    "on import": f"raise ValueError({SECRET!r})",
    "by exit": f"raise SystemExit({SECRET!r})",
    "in load": f"LABELS = [str(c) for c in range(10)]\ndef load():\n    raise type({SECRET!r}, (Exception,), {{}})({SECRET!r})",
    "as one of our sentences": (
        "from undrift.core.errors import BadRequest\nLABELS = [str(c) for c in range(10)]\n"
        f"def load():\n    raise BadRequest({SECRET!r})"),
    "while the data are read": (
        "LABELS = [str(c) for c in range(10)]\nclass Lazy:\n"
        f"    def __len__(self): raise KeyError({SECRET!r})\n    def __iter__(self): raise KeyError({SECRET!r})\n"
        "def load():\n    return Lazy(), Lazy()"),
    "as a label": (
        f"LABELS = [{SECRET!r}, 'b']\ndef load():\n    import numpy as np\n    return np.zeros((4, 8, 8)), np.arange(4) % 2"),
    "as data": f"LABELS = [str(c) for c in range(10)]\ndef load():\n    return [{SECRET!r}] * 4, [{SECRET!r}] * 4",
}  # fmt: skip


@pytest.mark.parametrize("where", LEAKS)
def test_an_error_leaves_as_a_code(where, deploy, capfd):
    deployment = deploy("fedavg", rounds=1)
    (deployment.folder / "berlin" / "data.py").write_text(LEAKS[where])
    deployment.serve()
    sent = [envelope for node, envelope in deployment.transport.up if node == BERLIN]
    assert [envelope.head for envelope in sent] == [
        {"kind": "refusal", "site": "berlin", "code": "labels" if where == "as a label" else "data"}
    ]
    assert SECRET not in "".join(map(str, deployment.events())) + "".join(deployment.log)
    assert SECRET in capfd.readouterr().err or where in ("as data", "while the data are read")
    assert [line["bytes"] for line in left(deployment, "berlin")] == received(deployment, "berlin") == [sent[0].bytes]


# ---- the policy ------------------------------------------------------------------------------------------------------

REFUSED = {
    'methods = ["fedavg"]': "the policy does not agree to the method scaffold",
    "messages = []": "the policy does not agree to the message objective.scaffold.change",
    'works = ["personalize"]': "the policy does not agree to the work 'train'",
    "max_rounds = 2": "the policy agrees to 2 rounds, and as many replies have left",
    "rounds = 2": "did you mean max_rounds?",
    'works = ["diagnose"]': "works[0] must be train or personalize, not 'diagnose'",
    'size = "roughly"': "size must be exact or rounded, not 'roughly'",
    "metrics = 3": "metrics must be a list, each a text, not 3",
    "max_rounds = true": "max_rounds must be a whole number",
    "methods = [": "is not a TOML file",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_the_policy_does_not_agree_to_is_refused_and_logged(text, deploy):
    deployment = deploy("scaffold", rounds=4, evaluate_every=9)
    policy(deployment, "berlin", text)
    deployment.serve()
    lines = left(deployment, "berlin")
    refusals = [line for line in lines if line["kind"] == "refusal"]
    assert refusals
    assert all(REFUSED[text] in line["why"] and line["code"] == "policy" for line in refusals)
    assert [line["bytes"] for line in lines] == received(deployment, "berlin")
    assert sum("train" in line.get("works", []) for line in lines) == (2 if text == "max_rounds = 2" else 0)
    assert any("its policy does not agree; see the site's log" in detail for *_, detail in deployment.events())


def test_bytes_agree_at_every_site_and_at_the_server(deploy):
    """Oslo refuses in the middle, turin's folder is removed: handshakes, refusals and replies are all counted."""
    deployment = deploy("scaffold", rounds=4, evaluate_every=1)
    policy(deployment, "oslo", "max_rounds = 2")
    deployment.serve()
    for site, node in NODES.items():
        sent = [envelope.bytes for sender, envelope in deployment.transport.up if sender == node]
        assert [line["bytes"] for line in left(deployment, site)] == received(deployment, site) == sent


def test_an_order_for_a_run_that_is_not_there_is_logged(deploy):
    deployment = deploy("fedavg", rounds=1)
    deployment.serve()
    envelope = orders_of(deployment, 0)
    strange = Envelope({**envelope.head, "run": "other"}, envelope.arrays)
    reply = client.handle(deployment.transport.spec, deployment.transport.configs[BERLIN], strange)
    assert reply.head["kind"] == "unknown run"
    (line,) = map(json.loads, (deployment.folder / "berlin/undrift/other/left.jsonl").read_text().splitlines())
    assert (line["kind"], line["bytes"]) == ("unknown run", reply.bytes)


def test_a_rounded_size_is_all_that_leaves(deploy):
    deployment = deploy("fedavg", rounds=2, evaluate_every=1, batch=7)
    for site in NODES:
        policy(deployment, site, 'size = "rounded"')
    result = deployment.serve()
    assert result.setup.plan.total == 150  # three times 48, as 50
    assert {kind for _, kind in deployment.kinds()} == {"joined"}
    for _, envelope in deployment.transport.up:
        for reply in envelope.head.get("replies", []):
            for value in [*reply["metrics"].get("own", {}).values(), reply.get("loss", 0.0)]:
                assert value == round(value, 3)
            if reply["work"] == "train":
                assert (reply["n"], reply["steps"], reply["effective_steps"]) == (50, 8, None)
    assert [rounded_up(n) for n in (0, 1, 99, 101, 999)] == [0, 10, 100, 110, 1000]


def test_a_rounded_size_is_accepted_where_steps_are_needed(deploy):
    deployment = deploy("fednova", rounds=2, evaluate_every=9)
    for site in NODES:
        policy(deployment, site, 'size = "rounded"')
    deployment.serve()
    assert {kind for _, kind in deployment.kinds()} == {"joined"}


def test_check_applies_the_policy(deploy):
    deployment = deploy("scaffold", rounds=1, deadline=60.0)
    deployment.serve()
    policy(deployment, "berlin", "messages = []")
    with pytest.raises(Refused, match="does not agree to the message"):
        check_site(deployment.run, "berlin", deployment.folder / "berlin" / "data.py")
    policy(deployment, "berlin", 'size = "rounded"')
    report = check_site(deployment.run, "berlin", deployment.folder / "berlin" / "data.py")
    assert "rounded" in report["policy"]


def test_a_policy_that_is_named_and_missing_is_refused(deploy):
    deployment = deploy("fedavg", rounds=1)
    deployment.transport.configs[BERLIN]["policy"] = str(deployment.folder / "nowhere.toml")
    deployment.serve()
    assert any("berlin was refused: its policy does not agree" in detail for *_, detail in deployment.events())


# ---- orders and states -----------------------------------------------------------------------------------------------

ORDERS = {
    "deletes every state": ({"keep_round": 10**6}, "states"),
    "deletes states without using one": ({"keep_round": 1, "state_round": None}, "states"),
    "overwrites the state it uses": ({"round": 0, "state_round": 0, "keep_round": None}, "states"),
    "diagnoses": ({"work": "diagnose"}, "policy"),
    "evaluates on other data": ({"work": "evaluate"}, "policy"),
    "fine-tunes": ({"work": "fine_tune"}, "policy"),
    "invents a work": ({"work": "copy the data"}, "policy"),
}


@pytest.mark.parametrize("what", ORDERS)
def test_a_server_can_neither_delete_states_nor_order_other_works(what, deploy):
    deployment = deploy("scaffold", rounds=3)
    deployment.serve()
    states = deployment.site_folder("berlin") / "states"
    before = {path.name: path.read_bytes() for path in states.iterdir()}
    fields, code = ORDERS[what]
    reply = ask(deployment, orders_of(deployment, 2), **fields)
    assert reply.head == {"kind": "refusal", "site": "berlin", "code": code}
    assert {path.name: path.read_bytes() for path in states.iterdir()} == before
    assert left(deployment, "berlin")[-1]["code"] == code


def test_an_order_for_an_old_round_replaces_no_state_for_good(deploy):
    """The server says that Berlin was never committed, and orders round 1 again: a rolled-back server may do that."""
    deployment = deploy("scaffold", rounds=3)
    deployment.serve()
    states = deployment.site_folder("berlin") / "states"
    before = {path.name: path.read_bytes() for path in states.iterdir()}
    version = int(min(before).partition(".")[0])
    for sent in (2, 1):  # twice, from other models: the first version stays, not the one in between
        order = {"round": version, "state_round": None, "keep_round": None}
        assert ask(deployment, orders_of(deployment, sent), **order).head["kind"] != "refusal"
    kept = {path.name: path.read_bytes() for path in states.iterdir()}
    assert kept[f"{version:08d}.safetensors"] != before[f"{version:08d}.safetensors"]
    assert kept[f"{version:08d}.before.safetensors"] == before[f"{version:08d}.safetensors"]
    others = [name for name in before if not name.startswith(f"{version:08d}")]
    assert others
    assert all(kept[name] == before[name] for name in others)


def test_a_state_carries_its_hash_and_a_damaged_one_is_reported(deploy, capfd):
    deployment = deploy("scaffold", rounds=3)

    def damage(transport: Any, node: int, envelope: Envelope) -> None:
        if node == OSLO and envelope.head.get("orders", [{}])[-1].get("round") == 2 and transport.before_send:
            states = deployment.site_folder("oslo") / "states"
            assert subprocess.run(["sha256sum", "--quiet", "-c", *states.glob("*.sha256")], cwd=states).returncode == 0
            for path in states.glob("*.safetensors"):
                data = bytearray(path.read_bytes())
                data[-1] ^= 1  # one bit of one number: the file still loads
                path.write_bytes(data)
            transport.before_send = None

    deployment.transport.before_send = damage
    deployment.serve()
    ((round, _, kind, detail),) = [event for event in deployment.events() if event[1] == 1]
    assert (round, kind, detail) == (
        2, "lost", "oslo: its state cannot be read, or is damaged; restore its folder; see the site's log"
    )  # fmt: skip
    assert "is damaged: its SHA-256 is not the one beside it" in capfd.readouterr().err


def test_the_servers_folder_and_databases_are_its_own(deploy):
    deployment = deploy("scaffold", rounds=2)
    deployment.run.mkdir(mode=0o755)
    deployment.serve()
    assert deployment.run.stat().st_mode & 0o777 == 0o700
    for path in deployment.run.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    for path in deployment.run.glob("run.sqlite*"):
        path.chmod(0o644)
    deployment.run.chmod(0o755)
    deployment.transport.spec = replace(deployment.transport.spec)
    deployment.serve(rounds=3)
    assert deployment.run.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in deployment.run.glob("run.sqlite*"))


def test_a_folder_that_is_no_run_keeps_its_mode(deploy):
    deployment = deploy("fedavg", rounds=1)
    deployment.run.mkdir(mode=0o755)
    (deployment.run / "thesis.tex").write_text("")
    with pytest.raises((BadRequest, RunFailed), match="holds files that are not a deployment's run"):
        deployment.serve()
    assert deployment.run.stat().st_mode & 0o777 == 0o755


def test_a_policy_changes_what_is_told_not_what_is_computed(deploy, simulate):
    deployment = deploy("fedavg", rounds=2)
    policy(deployment, "berlin", 'metrics = []\nmax_rounds = 99\nworks = ["train", "personalize"]')
    assert torch.equal(deployment.serve().vector, simulate("fedavg", rounds=2).vector)
