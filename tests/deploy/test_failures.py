"""A site that fails is left out of the round and recorded by name; the run continues and loses no state."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest, RunFailed
from undrift.deploy import client
from undrift.deploy.envelope import Envelope
from undrift.deploy.handshake import GONE
from undrift.deploy.site_store import SiteStore
from undrift.store import trees

BERLIN, OSLO, TURIN = 100, 99, 98  # node ids, not in the order of the sites


def round_of(envelope: Envelope) -> int:
    return envelope.head["orders"][-1]["round"] if envelope.head["kind"] == "orders" else -1


def works(envelope: Envelope) -> list[str]:
    return [order["work"] for order in envelope.head.get("orders", [])]


def store_of(deployment, site: str) -> SiteStore:
    folder = deployment.site_folder(site)
    return SiteStore(folder.parent, folder.name)


def assert_control_is_the_mean(deployment, result) -> None:
    """SCAFFOLD's c at the server is the mean of the committed c_k, read from the sites' own disks."""
    c = result.server_state.memories["objective.scaffold"]
    sites = deployment.transport.spec.sites
    controls = []
    for number, site in enumerate(sites):
        version = result.server_state.versions.get(("state", number))
        if version is None:
            controls.append(torch.zeros_like(c))
            continue
        state = trees.load(store_of(deployment, site).state_path(version).read_bytes())
        controls.append(state["parts"]["objective.scaffold"])
    assert torch.allclose(c, torch.stack(controls).mean(0), atol=1e-6)


def test_a_reply_lost_after_the_site_wrote_its_state_leaves_c_the_mean_of_c_k(deploy):
    deployment = deploy(deadline=0.02)
    deployment.change_reply(OSLO, 2, lambda reply: None)
    result = deployment.serve()
    assert (2, "late") in deployment.kinds(1)
    written = (deployment.site_folder("oslo") / "states" / "00000002.safetensors").exists()
    assert written or result.server_state.versions["state", 1] > 2
    assert_control_is_the_mean(deployment, result)


def test_a_node_that_disconnects_is_asked_again_if_the_quorum_needs_it(deploy, simulate):
    deployment = deploy("fedavg", quorum=3, wait=0.5)
    to_disconnect = [OSLO]

    def once(sender, envelope, reply):
        if sender in to_disconnect and round_of(envelope) == 1 and "train" in works(envelope):
            to_disconnect.remove(sender)
            return GONE
        return reply

    deployment.transport.change_reply = once
    assert torch.equal(deployment.serve().vector, simulate("fedavg").vector)
    ((round, detail),) = [(round, detail) for round, _, kind, detail in deployment.events() if kind == "quorum"]
    assert round == 1
    assert detail == "2 of 3 sites replied, 3 are needed: oslo: its node disconnected before it replied"


def test_a_site_that_replies_nan_is_left_out_of_that_round_only(deploy):
    deployment = deploy()

    def change(reply):
        return Envelope(reply.head, {**reply.arrays, "train.vector": reply.arrays["train.vector"] * math.nan})

    deployment.change_reply(BERLIN, 1, change)
    result = deployment.serve()
    assert deployment.kinds(0) == [(1, "nonfinite")]
    assert torch.isfinite(result.vector).all()
    assert_control_is_the_mean(deployment, result)


def test_a_site_that_is_offline_for_two_rounds_continues_with_its_state(deploy):
    deployment = deploy(rounds=6)

    def before(transport, node, envelope):
        if round_of(envelope) == 2 and "train" in works(envelope):
            transport.online.discard(TURIN)
        if round_of(envelope) == 4:
            transport.online.add(TURIN)

    deployment.transport.before_send = before
    result = deployment.serve()
    absent = [round for round, kind in deployment.kinds(2) if kind in ("late", "absent")]
    assert absent in ([2, 3], [2, 3, 4])
    assert result.server_state.versions["state", 2] == 5
    assert_control_is_the_mean(deployment, result)


def test_a_site_may_join_later(deploy):
    deployment = deploy(rounds=5)
    deployment.transport.online.discard(TURIN)

    def before(transport, node, envelope):
        if round_of(envelope) == 2:
            transport.online.add(TURIN)

    deployment.transport.before_send = before
    deployment.serve()
    events = deployment.events()
    assert (0, None, "absent", "turin did not complete the handshake") in events
    assert any(kind == "joined" and "turin" in detail and round == 3 for round, _, kind, detail in events)
    replied = ud.load(deployment.run).rows("SELECT round FROM notes WHERE client=2 AND name='working' ORDER BY round")
    assert replied == [(3,), (4,)]
    assert deployment.site_folder("turin").joinpath("personal.safetensors").exists()


def test_a_site_that_only_evaluates_changes_nothing_and_gets_the_model(deploy, simulate):
    deployment = deploy(evaluate_only=("geneva",))
    result = deployment.serve()
    assert torch.equal(result.vector, simulate(clients=4).vector)
    assert (4, 3) in deployment.metrics("G")
    assert (4, 3) in deployment.metrics("L1")
    assert 3 not in {client for _, client in deployment.metrics("L2")}
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(ud.load(deployment.site_folder("geneva")).model(x), result.model(x))


def test_too_few_sites_at_the_handshake_end_the_run_before_round_0(deploy):
    deployment = deploy(quorum=3)
    deployment.transport.online.discard(OSLO)
    with pytest.raises(RunFailed, match="2 of 3 sites completed the handshake and 3 are needed"):
        deployment.serve()
    deployment.transport.online.add(OSLO)
    assert deployment.serve().summary["rounds"] == 5


def test_a_missed_quorum_is_retried_then_the_run_ends_and_can_be_resumed(deploy, simulate):
    deployment = deploy(quorum=3, deadline=0.02)
    deployment.transport.change_reply = lambda node, envelope, reply: (
        None if node == OSLO and round_of(envelope) == 2 else reply
    )
    with pytest.raises(RunFailed, match=r"round 2 missed its quorum 3 times \(2 of 3"):
        deployment.serve()
    deployment.transport.change_reply = None
    result = deployment.serve()
    assert torch.equal(result.vector, simulate().vector)
    assert "resumed" in [kind for _, kind in deployment.kinds()]


@pytest.mark.parametrize("after", [0, 2, 4])
def test_a_server_that_is_killed_and_restarted_gives_the_same_bits(after, deploy, simulate):
    deployment = deploy(evaluate_every=1)

    class Killed(BaseException):
        pass

    def kill(transport, node, envelope):
        if round_of(envelope) == after and "train" in works(envelope) and node == TURIN:
            raise Killed

    deployment.transport.before_send = kill
    with pytest.raises(Killed):
        deployment.serve()
    deployment.transport.before_send = None
    result, simulated = deployment.serve(), simulate(evaluate_every=1)
    assert torch.equal(result.vector, simulated.vector)
    assert_control_is_the_mean(deployment, result)
    for stage in ("L1", "L2"):
        query = "SELECT round, client, value FROM metrics WHERE stage=? AND data='own' AND metric='accuracy' ORDER BY round, client"
        assert result.rows(query, (stage,)) == simulated.rows(query, (stage,))


def test_orders_from_before_a_server_restart_are_not_executed(deploy):
    deployment = deploy(rounds=2)
    deployment.serve()
    old = next(envelope for _, envelope in deployment.transport.down if envelope.head["kind"] == "orders")
    site_store = store_of(deployment, "berlin")
    session, initial, integers, base = site_store.load_initial()
    site_store.save_initial(session + 1, initial, integers, base)
    reply = client.handle(deployment.transport.spec, deployment.transport.configs[BERLIN], old)
    assert reply.head["kind"] == "unknown run"


def test_a_finished_run_gets_more_rounds_by_the_same_command(deploy):
    deployment = deploy(rounds=3)
    deployment.serve()
    assert deployment.serve(rounds=5).summary["rounds"] == 5


def test_a_run_of_another_deployment_is_not_resumed(deploy):
    deployment = deploy(rounds=1)
    deployment.serve()
    deployment.transport.spec = replace(
        deployment.transport.spec, table={**deployment.transport.spec.table, "method": "fedavg"}
    )
    with pytest.raises(BadRequest, match="not this app's method"):
        deployment.serve()
    deployment.transport.spec = replace(deployment.transport.spec, sites=("berlin", "oslo"))
    with pytest.raises(BadRequest, match="other sites or labels"):
        deployment.serve()


def test_a_site_whose_folder_was_removed_gets_another_handshake(deploy):
    deployment = deploy("fedavg", rounds=4)

    def before(transport, node, envelope):
        if round_of(envelope) == 1 and node == OSLO and deployment.site_folder("oslo").exists():
            shutil.rmtree(deployment.site_folder("oslo"))
            transport.before_send = None

    deployment.transport.before_send = before
    deployment.serve()
    assert (1, "late") in deployment.kinds(1)
    assert deployment.site_folder("oslo").joinpath("model.safetensors").exists()


def test_a_site_that_lost_its_state_is_left_out(deploy):
    deployment = deploy(rounds=3)

    def before(transport, node, envelope):
        if round_of(envelope) == 2 and node == OSLO:
            for path in (deployment.site_folder("oslo") / "states").iterdir():
                path.unlink()

    deployment.transport.before_send = before
    deployment.serve()
    assert [kind for _, kind in deployment.kinds(1)] == ["lost"]


def test_an_exception_at_a_site_is_reported_without_its_message(deploy, capfd):
    deployment = deploy(rounds=2)
    path = deployment.folder / "oslo" / "data.py"
    path.write_text(path.read_text() + "\nimport undrift.round.client\n" + SABOTAGE)
    try:
        deployment.serve()
    finally:
        import undrift.round.client

        undrift.round.client.ClientRound.train = undrift.round.client.ClientRound.original_train  # type: ignore[attr-defined]
    (event,) = [detail for _, client, kind, detail in deployment.events() if kind == "exception"]
    assert event == "oslo: its training raised an error; see the site's log"
    assert "patient 17" in capfd.readouterr().err


SABOTAGE = """
if not hasattr(undrift.round.client.ClientRound, "original_train"):
    undrift.round.client.ClientRound.original_train = undrift.round.client.ClientRound.train
def train(self):
    if self.order.client == 1 and self.order.round == 1:
        raise ValueError("patient 17")
    return self.original_train()
undrift.round.client.ClientRound.train = train
"""


def test_a_site_with_fewer_samples_than_a_batch_takes_part(deploy):
    deployment = deploy("fedavg", batch=64, rounds=2)
    np.savez(deployment.folder / "oslo" / "data.npz", x=np.zeros((3, 8, 8), "float32"), y=np.arange(3))
    deployment.serve()
    assert deployment.kinds(1) == []
