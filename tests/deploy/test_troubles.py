"""Whatever a site does, the federation goes on without it, the record says so, and nothing is lost."""

from __future__ import annotations

import math

import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest, RunFailed
from undrift.deploy.envelope import Envelope
from undrift.deploy.handshake import GONE
from undrift.deploy.site_store import SiteStore
from undrift.store import trees

BERLIN, OSLO, TURIN = 100, 99, 98  # nodes, whose numbers say nothing about the order of sites


def round_of(envelope: Envelope) -> int:
    return envelope.head["orders"][-1]["round"] if envelope.head["kind"] == "orders" else -1


def works(envelope: Envelope) -> list[str]:
    return [order["work"] for order in envelope.head.get("orders", [])]


def control_is_the_mean(here, result) -> None:
    """SCAFFOLD's c on the server = the mean of the committed c_k, read from the sites' own disks."""
    c = result.server_state.memories["objective.scaffold"]
    sites = here.transport.spec.sites
    controls = []
    for number, site in enumerate(sites):
        version = result.server_state.versions.get(("state", number))
        if version is None:
            controls.append(torch.zeros_like(c))
            continue
        state = trees.load(
            SiteStore(here.site_store(site).parent, here.site_store(site).name).place(version).read_bytes()
        )
        controls.append(state["parts"]["objective.scaffold"])
    assert torch.allclose(c, torch.stack(controls).mean(0), atol=1e-6)


def test_a_reply_lost_after_the_site_wrote_its_state_leaves_c_the_mean_of_c_k(deploy):
    here = deploy(deadline=0.02)
    here.spoil(OSLO, 2, lambda reply: None)
    result = here.serve()
    assert (2, "late") in here.kinds(1)
    assert (here.site_store("oslo") / "states" / "00000002.safetensors").exists() or result.server_state.versions[
        "state", 1
    ] > 2
    control_is_the_mean(here, result)


def test_a_node_that_went_away_is_asked_again_where_the_quorum_needs_it(deploy, simulate):
    here = deploy("fedavg", quorum=3, wait=0.5)
    left = [OSLO]

    def once(sender, envelope, reply):
        hit = sender in left and round_of(envelope) == 1 and "train" in works(envelope)
        return GONE if hit and not left.remove(sender) else reply

    here.transport.spoil = once
    assert torch.equal(here.serve().vector, simulate("fedavg").vector)
    ((round, said),) = [(round, said) for round, _, kind, said in here.events() if kind == "quorum"]
    assert round == 1
    assert said == "2 of 3 sites gave an answer, 3 are needed: oslo: its node went away before it answered"


def test_a_site_that_answers_nan_is_left_out_of_that_round_alone(deploy):
    here = deploy()

    def change(reply):
        return Envelope(reply.head, {**reply.arrays, "train.vector": reply.arrays["train.vector"] * math.nan})

    here.spoil(BERLIN, 1, change)
    result = here.serve()
    assert here.kinds(0) == [(1, "nonfinite")]
    assert torch.isfinite(result.vector).all()
    control_is_the_mean(here, result)


def test_a_site_that_is_away_for_two_rounds_finds_its_state_again(deploy):
    here = deploy(rounds=6)

    def before(transport, node, envelope):
        if round_of(envelope) == 2 and "train" in works(envelope):
            transport.online.discard(TURIN)
        if round_of(envelope) == 4:
            transport.online.add(TURIN)

    here.transport.before = before
    result = here.serve()
    away = [(round, kind) for round, kind in here.kinds(2) if kind in ("late", "absent")]
    assert [round for round, _ in away] in ([2, 3], [2, 3, 4])
    assert result.server_state.versions["state", 2] == 5
    control_is_the_mean(here, result)


def test_a_site_may_join_later(deploy):
    here = deploy(rounds=5)
    here.transport.online.discard(TURIN)

    def before(transport, node, envelope):
        if round_of(envelope) == 2:
            transport.online.add(TURIN)

    here.transport.before = before
    here.serve()
    events = here.events()
    assert (0, None, "absent", "turin did not answer the roll call") in events
    assert any(kind == "joined" and "turin" in detail and round == 3 for round, _, kind, detail in events)
    answered = ud.load(here.run).rows("SELECT round FROM notes WHERE client=2 AND name='working' ORDER BY round")
    assert answered == [(3,), (4,)]
    assert here.site_store("turin").joinpath("personal.safetensors").exists()


def test_a_site_that_only_judges_changes_nothing_and_gets_the_model(deploy, simulate):
    here = deploy(evaluate_only=("geneva",))
    result = here.serve()
    assert torch.equal(result.vector, simulate(clients=4).vector)
    assert (4, 3) in here.metrics("G")
    assert (4, 3) in here.metrics("L1")
    assert 3 not in {client for _, client in here.metrics("L2")}
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(ud.load(here.site_store("geneva")).model(x), result.model(x))


def test_too_few_sites_at_the_roll_call_end_the_run_before_round_0(deploy):
    here = deploy(quorum=3)
    here.transport.online.discard(OSLO)
    with pytest.raises(RunFailed, match="2 of 3 sites answered the roll call and 3 are needed"):
        here.serve()
    here.transport.online.add(OSLO)
    assert here.serve().summary["rounds"] == 5


def test_a_missed_quorum_is_tried_again_then_the_run_ends_and_goes_on_later(deploy, simulate):
    here = deploy(quorum=3, deadline=0.02)
    here.transport.spoil = lambda node, envelope, reply: None if node == OSLO and round_of(envelope) == 2 else reply
    with pytest.raises(RunFailed, match=r"round 2 missed its quorum 3 times \(2 of 3"):
        here.serve()
    here.transport.spoil = None
    result = here.serve()
    assert torch.equal(result.vector, simulate().vector)
    assert "resumed" in [kind for _, kind in here.kinds()]


@pytest.mark.parametrize("after", [0, 2, 4])
def test_a_server_that_dies_and_is_started_again_ends_with_the_same_bits(after, deploy, simulate):
    here = deploy(evaluate_every=1)

    class Dead(BaseException):
        pass

    def dies(transport, node, envelope):
        if round_of(envelope) == after and "train" in works(envelope) and node == TURIN:
            raise Dead

    here.transport.before = dies
    with pytest.raises(Dead):
        here.serve()
    here.transport.before = None
    result, simulated = here.serve(), simulate(evaluate_every=1)
    assert torch.equal(result.vector, simulated.vector)
    control_is_the_mean(here, result)
    for stage in ("L1", "L2"):
        query = "SELECT round, client, value FROM metrics WHERE stage=? AND data='own' AND metric='accuracy' ORDER BY round, client"
        assert result.rows(query, (stage,)) == simulated.rows(query, (stage,))


def test_orders_from_before_the_server_was_started_again_are_not_worked_on(deploy):
    here = deploy(rounds=2)
    here.serve()
    old = next(envelope for _, envelope in here.transport.down if envelope.head["kind"] == "orders")
    site_store = SiteStore(here.site_store("berlin").parent, here.site_store("berlin").name)
    session, initial, integers = site_store.facts()
    site_store.begin(session + 1, initial, integers)
    from undrift.deploy.client import answer

    assert answer(here.transport.spec, here.transport.configs[BERLIN], old).head["kind"] == "stranger"


def test_a_finished_run_is_given_more_rounds_by_the_same_command(deploy, simulate):
    here = deploy(rounds=3)
    here.serve()
    assert here.serve(rounds=5).summary["rounds"] == 5


def test_a_folder_of_another_deployment_is_not_gone_on_with(deploy):
    here = deploy(rounds=1)
    here.serve()
    from dataclasses import replace

    here.transport.spec = replace(here.transport.spec, table={**here.transport.spec.table, "method": "fedavg"})
    with pytest.raises(BadRequest, match="not this app's method"):
        here.serve()
    here.transport.spec = replace(here.transport.spec, sites=("berlin", "oslo"))
    with pytest.raises(BadRequest, match="other sites or labels"):
        here.serve()


def test_a_site_whose_folder_is_gone_says_so_and_is_called_again(deploy):
    import shutil

    here = deploy("fedavg", rounds=4)

    def before(transport, node, envelope):
        if round_of(envelope) == 1 and node == OSLO and here.site_store("oslo").exists():
            shutil.rmtree(here.site_store("oslo"))
            transport.before = None

    here.transport.before = before
    here.serve()
    assert (1, "late") in here.kinds(1)
    assert here.site_store("oslo").joinpath("model.safetensors").exists()


def test_a_site_that_lost_its_state_is_left_out_with_a_sentence(deploy):
    here = deploy(rounds=3)

    def before(transport, node, envelope):
        if round_of(envelope) == 2 and node == OSLO:
            for path in (here.site_store("oslo") / "states").iterdir():
                path.unlink()

    here.transport.before = before
    here.serve()
    assert [kind for _, kind in here.kinds(1)] == ["lost"]


def test_an_exception_at_a_site_travels_without_its_words(deploy, capfd):
    here = deploy(rounds=2)
    path = here.folder / "oslo" / "data.py"
    path.write_text(path.read_text() + "\nimport undrift.round.client\n" + SABOTAGE)
    try:
        here.serve()
    finally:
        import undrift.round.client

        undrift.round.client.ClientRound.train = undrift.round.client.ClientRound.calm  # type: ignore[attr-defined]
    (event,) = [detail for _, client, kind, detail in here.events() if kind == "exception"]
    assert event == "oslo: ValueError; the site's log has the rest"
    assert "patient 17" in capfd.readouterr().err


SABOTAGE = """
if not hasattr(undrift.round.client.ClientRound, "calm"):
    undrift.round.client.ClientRound.calm = undrift.round.client.ClientRound.train
def train(self):
    if self.order.client == 1 and self.order.round == 1:
        raise ValueError("patient 17")
    return self.calm()
undrift.round.client.ClientRound.train = train
"""


def test_a_site_with_fewer_samples_than_a_batch_takes_part(deploy, simulate):
    here = deploy("fedavg", batch=64, rounds=2)
    import numpy as np

    np.savez(here.folder / "oslo" / "data.npz", x=np.zeros((3, 8, 8), "float32"), y=np.arange(3))
    here.serve()
    assert here.kinds(1) == []
