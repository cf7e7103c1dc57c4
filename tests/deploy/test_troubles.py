"""Whatever a site does, the federation goes on without it, the record says so, and nothing is lost."""

from __future__ import annotations

import json
import math

import pytest
import torch

import undrift as ud
from undrift.declare import Malformed
from undrift.deploy.border import unpack_replies
from undrift.deploy.home import Home
from undrift.deploy.parcel import Parcel, opened
from undrift.deploy.roll import GONE, Roll, calling
from undrift.deploy.spec import at_server
from undrift.errors import BadRequest, RunFailed
from undrift.orders import Order
from undrift.store import trees

BERLIN, OSLO, TURIN = 100, 99, 98  # nodes, whose numbers say nothing about the order of sites


def round_of(parcel: Parcel) -> int:
    return parcel.head["orders"][-1]["round"] if parcel.head["kind"] == "orders" else -1


def works(parcel: Parcel) -> list[str]:
    return [order["work"] for order in parcel.head.get("orders", [])]


def only(node, round, change):
    """Spoil one node's answer to one training order."""

    def spoil(sender, parcel, reply):
        hit = sender == node and round_of(parcel) == round and "train" in works(parcel)
        return change(reply) if hit else reply

    return spoil


def control_is_the_mean(here, result) -> None:
    """SCAFFOLD's c on the server = the mean of the committed c_k, read from the sites' own disks."""
    c = result.world.memories["objective.scaffold"]
    sites = here.post.spec.sites
    controls = []
    for number, site in enumerate(sites):
        version = result.world.versions.get(("state", number))
        if version is None:
            controls.append(torch.zeros_like(c))
            continue
        state = trees.load(Home(here.home(site).parent, here.home(site).name).place(version).read_bytes())
        controls.append(state["parts"]["objective.scaffold"])
    assert torch.allclose(c, torch.stack(controls).mean(0), atol=1e-6)


def kinds(here, client=None) -> list[tuple[int, str]]:
    return [(round, kind) for round, who, kind, _ in here.events() if client is None or who == client]


def test_a_reply_lost_after_the_site_wrote_its_state_leaves_c_the_mean_of_c_k(deploy):
    here = deploy(deadline=0.02)
    here.post.spoil = only(OSLO, 2, lambda reply: None)
    result = here.serve()
    assert (2, "late") in kinds(here, 1)
    assert (here.home("oslo") / "states" / "00000002.safetensors").exists() or result.world.versions["state", 1] > 2
    control_is_the_mean(here, result)


def test_a_node_that_went_away_is_asked_again_where_the_quorum_needs_it(deploy, simulate):
    here = deploy("fedavg", quorum=3, wait=0.5)
    left = [OSLO]

    def once(sender, parcel, reply):
        hit = sender in left and round_of(parcel) == 1 and "train" in works(parcel)
        return GONE if hit and not left.remove(sender) else reply

    here.post.spoil = once
    assert torch.equal(here.serve().vector, simulate("fedavg").vector)
    ((round, said),) = [(round, said) for round, _, kind, said in here.events() if kind == "quorum"]
    assert round == 1
    assert said == "2 of 3 sites gave an answer, 3 are needed: oslo: its node went away before it answered"


def spoilt(name, value):
    def change(reply):
        arrays = {**reply.arrays, name: value(reply.arrays[name])}
        return Parcel(reply.head, arrays)

    return change


def test_a_site_that_answers_nan_is_left_out_of_that_round_alone(deploy):
    here = deploy()
    here.post.spoil = only(BERLIN, 1, spoilt("train.vector", lambda v: torch.full_like(v, math.nan)))
    result = here.serve()
    assert kinds(here, 0) == [(1, "nonfinite")]
    assert torch.isfinite(result.vector).all()
    control_is_the_mean(here, result)


def head(change):
    def spoil(reply):
        words = json.loads(reply.text)
        change(words["replies"][-1])
        return Parcel(words, reply.arrays)

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
    "a verdict by another name": (head(lambda w: w.update(verdicts={"global": {}})), "it judges on"),
    "too few answers": (lambda reply: Parcel({**reply.head, "replies": []}, reply.arrays), "0 answers came to"),
}  # fmt: skip


@pytest.fixture(scope="module")
def answered(tmp_path_factory, deploy_in):
    """A site's whole answer to its first training order, and what the server needs to read it."""
    here = deploy_in(tmp_path_factory.mktemp("answered"), rounds=1)
    replies: list[Parcel] = []
    here.post.spoil = only(BERLIN, 0, lambda reply: replies.append(reply) or reply)
    setup = here.serve().setup
    return replies[0], Order("train", 0, 0, setup.site.initial, {}), setup.plan


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
    here.post.spoil = only(BERLIN, 0, BROKEN["a wrong shape"][0])
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


def test_a_site_that_is_away_for_two_rounds_finds_its_state_again(deploy):
    here = deploy(rounds=6)

    def before(post, node, parcel):
        if round_of(parcel) == 2 and "train" in works(parcel):
            post.online.discard(TURIN)
        if round_of(parcel) == 4:
            post.online.add(TURIN)

    here.post.before = before
    result = here.serve()
    away = [(round, kind) for round, kind in kinds(here, 2) if kind in ("late", "absent")]
    assert [round for round, _ in away] in ([2, 3], [2, 3, 4])
    assert result.world.versions["state", 2] == 5
    control_is_the_mean(here, result)


def test_a_site_may_join_later(deploy):
    here = deploy(rounds=5)
    here.post.online.discard(TURIN)

    def before(post, node, parcel):
        if round_of(parcel) == 2:
            post.online.add(TURIN)

    here.post.before = before
    here.serve()
    events = here.events()
    assert (0, None, "absent", "turin did not answer the roll call") in events
    assert any(kind == "joined" and "turin" in detail and round == 3 for round, _, kind, detail in events)
    answered = ud.load(here.run).rows("SELECT round FROM notes WHERE client=2 AND name='working' ORDER BY round")
    assert answered == [(3,), (4,)]
    assert here.home("turin").joinpath("personal.safetensors").exists()


def test_a_site_that_only_judges_changes_nothing_and_gets_the_model(deploy, simulate):
    here = deploy(evaluate_only=("geneva",))
    result = here.serve()
    assert torch.equal(result.vector, simulate(clients=4).vector)
    assert (4, 3) in here.metrics("G")
    assert (4, 3) in here.metrics("L1")
    assert 3 not in {client for _, client in here.metrics("L2")}
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(ud.load(here.home("geneva")).model(x), result.model(x))


def test_too_few_sites_at_the_roll_call_end_the_run_before_round_0(deploy):
    here = deploy(quorum=3)
    here.post.online.discard(OSLO)
    with pytest.raises(RunFailed, match="2 of 3 sites answered the roll call and 3 are needed"):
        here.serve()
    here.post.online.add(OSLO)
    assert here.serve().summary["rounds"] == 5


def test_a_missed_quorum_is_tried_again_then_the_run_ends_and_goes_on_later(deploy, simulate):
    here = deploy(quorum=3, deadline=0.02)
    here.post.spoil = lambda node, parcel, reply: None if node == OSLO and round_of(parcel) == 2 else reply
    with pytest.raises(RunFailed, match=r"round 2 missed its quorum 3 times \(2 of 3"):
        here.serve()
    here.post.spoil = None
    result = here.serve()
    assert torch.equal(result.vector, simulate().vector)
    assert "resumed" in [kind for _, kind in kinds(here)]


@pytest.mark.parametrize("after", [0, 2, 4])
def test_a_server_that_dies_and_is_started_again_ends_with_the_same_bits(after, deploy, simulate):
    here = deploy(evaluate_every=1)

    class Dead(BaseException):
        pass

    def dies(post, node, parcel):
        if round_of(parcel) == after and "train" in works(parcel) and node == TURIN:
            raise Dead

    here.post.before = dies
    with pytest.raises(Dead):
        here.serve()
    here.post.before = None
    result, simulated = here.serve(), simulate(evaluate_every=1)
    assert torch.equal(result.vector, simulated.vector)
    control_is_the_mean(here, result)
    for stage in ("L1", "L2"):
        query = "SELECT round, client, value FROM metrics WHERE stage=? AND data='own' AND metric='accuracy' ORDER BY round, client"
        assert result.rows(query, (stage,)) == simulated.rows(query, (stage,))


def test_orders_from_before_the_server_was_started_again_are_not_worked_on(deploy):
    here = deploy(rounds=2)
    here.serve()
    old = next(parcel for _, parcel in here.post.down if parcel.head["kind"] == "orders")
    home = Home(here.home("berlin").parent, here.home("berlin").name)
    session, initial, integers = home.facts()
    home.begin(session + 1, initial, integers)
    from undrift.deploy.client import answer

    assert answer(here.post.spec, here.post.configs[BERLIN], old).head["kind"] == "stranger"


def test_a_finished_run_is_given_more_rounds_by_the_same_command(deploy, simulate):
    here = deploy(rounds=3)
    here.serve()
    assert here.serve(rounds=5).summary["rounds"] == 5


def test_a_folder_of_another_deployment_is_not_gone_on_with(deploy):
    here = deploy(rounds=1)
    here.serve()
    from dataclasses import replace

    here.post.spec = replace(here.post.spec, table={**here.post.spec.table, "method": "fedavg"})
    with pytest.raises(BadRequest, match="not this app's method"):
        here.serve()
    here.post.spec = replace(here.post.spec, sites=("berlin", "oslo"))
    with pytest.raises(BadRequest, match="other sites or labels"):
        here.serve()


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
    spec = here.post.spec
    roll = Roll(spec, here.post, calling(spec, spec.setup(at_server(spec, [1, 1, 1])), "run", 1))
    roll.wait(0)
    assert roll.here() == {"oslo", "turin"}
    (event,) = [detail for kind, detail in roll.said if kind == "refused"]
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
    here.post.names = {BERLIN: "oslo"}
    here.serve()
    assert any(
        kind == "refused" and "registered for oslo, not for berlin" in detail for _, _, kind, detail in here.events()
    )


def test_two_nodes_that_claim_one_site_the_first_keeps_it(deploy):
    here = deploy(rounds=1)
    here.post.configs[97] = here.post.configs[BERLIN]
    here.post.online.add(97)
    here.serve()
    assert any(kind == "refused" and "another node" in detail for _, _, kind, detail in here.events())


def test_another_version_of_undrift_is_refused(deploy, monkeypatch):
    here = deploy(rounds=1)

    def spoil(node, parcel, reply):
        return Parcel({**reply.head, "version": "9.9"}) if node == OSLO and reply.head["kind"] == "roll" else reply

    here.post.spoil = spoil
    here.serve()
    assert any("oslo was refused: it has undrift 9.9" in detail for _, _, _, detail in here.events())


def test_a_site_whose_folder_is_gone_says_so_and_is_called_again(deploy):
    import shutil

    here = deploy("fedavg", rounds=4)

    def before(post, node, parcel):
        if round_of(parcel) == 1 and node == OSLO and here.home("oslo").exists():
            shutil.rmtree(here.home("oslo"))
            post.before = None

    here.post.before = before
    here.serve()
    assert (1, "late") in kinds(here, 1)
    assert here.home("oslo").joinpath("model.safetensors").exists()


def test_a_site_that_lost_its_state_is_left_out_with_a_sentence(deploy):
    here = deploy(rounds=3)

    def before(post, node, parcel):
        if round_of(parcel) == 2 and node == OSLO:
            for path in (here.home("oslo") / "states").iterdir():
                path.unlink()

    here.post.before = before
    here.serve()
    assert [kind for _, kind in kinds(here, 1)] == ["lost"]


def test_an_exception_at_a_site_travels_without_its_words(deploy, capfd):
    here = deploy(rounds=2)
    path = here.folder / "oslo" / "data.py"
    path.write_text(path.read_text() + "\nimport undrift.local\n" + SABOTAGE)
    try:
        here.serve()
    finally:
        import undrift.local

        undrift.local.Round.train = undrift.local.Round.calm  # type: ignore[attr-defined]
    (event,) = [detail for _, client, kind, detail in here.events() if kind == "exception"]
    assert event == "oslo: ValueError; the site's log has the rest"
    assert "patient 17" in capfd.readouterr().err


SABOTAGE = """
if not hasattr(undrift.local.Round, "calm"):
    undrift.local.Round.calm = undrift.local.Round.train
def train(self):
    if self.order.client == 1 and self.order.round == 1:
        raise ValueError("patient 17")
    return self.calm()
undrift.local.Round.train = train
"""


def test_a_site_with_fewer_samples_than_a_batch_takes_part(deploy, simulate):
    here = deploy("fedavg", batch=64, rounds=2)
    import numpy as np

    np.savez(here.folder / "oslo" / "data.npz", x=np.zeros((3, 8, 8), "float32"), y=np.arange(3))
    here.serve()
    assert kinds(here, 1) == []
