"""Ray gives inline's bits, uses the cluster as it is, and goes on without what died."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass

import pytest
import torch

import undrift as ud
from undrift.errors import RunFailed
from undrift.parts import Job, Objective
from undrift.testing import small_network, tiny

pytestmark = pytest.mark.ray

SETTINGS = {"rounds": 4, "epochs": 2, "batch": 8, "momentum": 0.5, "cohort": 3, "evaluate_every": 2}
PLAIN = {**SETTINGS, "model": lambda: small_network(5, 3)}
NORM = {**SETTINGS, "model": lambda: small_network(5, 3, norm=True, dropout=0.2)}
WIDE = {**SETTINGS, "model": "mlp(300)"}  # 2 700 numbers: more than travels inside a message


class Watcher:
    """Keeps the engine, and does something after a round."""

    def __init__(self, **after):
        self.after = {int(name[1:]): action for name, action in after.items()}

    def began(self, setup, engine):
        self.engine = engine

    def round(self, round, rounds, seconds, accuracy):
        self.after.get(round, lambda: None)()


@pytest.mark.parametrize("actors", [1, 2])
@pytest.mark.parametrize(
    ("name", "settings"),
    [("scaffold", WIDE), ("fliu", PLAIN), ("flood", PLAIN), ("fedmr", WIDE), ("fedavg", NORM)],
    ids=["scaffold", "fliu", "flood", "fedmr", "norm-dropout"],
)
def test_ray_gives_the_same_bits_as_inline(name, settings, actors, on_ray):
    federation = tiny(clients=5)
    inline = ud.run(name, federation, engine="inline", out=False, **settings)
    spread = ud.run(name, federation, workers=actors, **on_ray, **settings)
    assert inline.summary["model_sha256"] == spread.summary["model_sha256"]
    rows = "SELECT * FROM metrics ORDER BY round, client, stage, data, metric"
    assert inline.rows(rows) == spread.rows(rows)


@dataclass(frozen=True)
class Slow(Objective):
    """Takes a while, so that something can happen in mid-round."""

    def begin(self, job: Job, state, told):
        time.sleep(0.3)


def test_a_node_that_joins_is_used_and_one_that_dies_in_mid_round_is_named_and_its_work_redone(cluster, node, on_ray):
    federation = tiny(clients=8)
    settings = {**PLAIN, "cohort": 1.0, "rounds": 4}
    calm = ud.run(Slow(), federation, engine="inline", out=False, **settings)
    third = []

    def join():
        third.append(cluster.add_node(**node, num_cpus=2))
        until = time.monotonic() + 60
        while len(watcher.engine.workers) < 4 and time.monotonic() < until:
            list(watcher.engine.answers())  # nobody works between rounds: whoever answers has arrived
        assert len(watcher.engine.workers) == 4

    def kill():
        threading.Timer(0.2, lambda: cluster.remove_node(third[0], allow_graceful=False)).start()

    watcher = Watcher(_0=join, _1=kill)
    hit = ud.run(Slow(), federation, watcher=watcher, **on_ray, **settings)
    assert calm.summary["model_sha256"] == hit.summary["model_sha256"]
    (failure,) = hit.summary["failures"]
    assert (failure["round"], failure["client"], failure["kind"]) == (2, None, "node")
    assert failure["detail"].startswith(f"node 127.0.0.1 ({third[0].node_id[:8]}) died with 2 actors over clients")


def test_an_actor_that_dies_on_every_try_ends_the_run_with_a_sentence(tmp_path, on_ray):
    with pytest.raises(RunFailed, match="workers died 3 times over the work of client 2 in round 1"):
        ud.run(Deadly(), tiny(clients=4), **on_ray, **{**PLAIN, "cohort": 1.0})


@dataclass(frozen=True)
class Deadly(Objective):
    """Kills its own process in round 1 at client 2."""

    def begin(self, job: Job, state, told):
        if job.round == 1 and job.client == 2:
            signal.raise_signal(signal.SIGKILL)


def test_what_clients_share_goes_through_the_store_once_and_what_differs_with_each(on_ray):
    """mlp(300) on 5 features and 3 classes: 5·300 + 300 + 300·3 + 3 = 2 703 numbers, 10 812 bytes."""
    federation = tiny(clients=5)
    moved = {}
    for name in ("fedavg", "scaffold", "fedmr"):
        watcher = Watcher()
        ud.run(name, federation, workers=2, watcher=watcher, **on_ray,
               **{**WIDE, "rounds": 3, "evaluate_every": 99, "cohort": 4})  # fmt: skip
        moved[name] = watcher.engine.bytes
    size = 10_812
    assert moved["fedavg"]["common"] == 3 * size  # the vector, to all four clients at once
    assert moved["fedavg"]["orders"] < size
    assert 3 * 4 * size < moved["fedavg"]["replies"] < 3 * 4 * (size + 2000) + 3 * size  # and logits of the test set
    assert moved["scaffold"]["common"] == 2 * 3 * size  # the vector and c
    assert moved["fedmr"]["orders"] > 4 * size  # recombined models differ from client to client


def test_ctrl_c_leaves_no_actor_behind(cluster, on_ray):
    import ray

    with pytest.raises(KeyboardInterrupt):
        ud.run("fedavg", tiny(clients=4), watcher=Watcher(_1=lambda: signal.raise_signal(signal.SIGINT)),
               **on_ray, **PLAIN)  # fmt: skip
    assert not ray.is_initialized()
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        until = time.monotonic() + 10
        while ray.available_resources().get("CPU", 0) < ray.cluster_resources()["CPU"] and time.monotonic() < until:
            time.sleep(0.1)
        assert ray.available_resources()["CPU"] == ray.cluster_resources()["CPU"]
        again = ud.run("fedavg", tiny(clients=4), **on_ray, **PLAIN)  # in a cluster this process has joined already
        assert ray.is_initialized()
        assert torch.equal(again.vector, ud.run("fedavg", tiny(clients=4), engine="inline", out=False, **PLAIN).vector)
    finally:
        ray.shutdown()


def test_a_run_begun_inline_is_resumed_on_ray_with_the_same_result(tmp_path, on_ray):
    def stop():
        raise KeyboardInterrupt

    federation, settings = tiny(clients=5), {**WIDE, "checkpoint_every": 1}
    whole = ud.run("scaffold", federation, engine="inline", out=tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        ud.run("scaffold", federation, engine="inline", out=tmp_path / "run", watcher=Watcher(_1=stop), **settings)
    where = {name: value for name, value in on_ray.items() if name != "out"}
    resumed = ud.resume(tmp_path / "run", federation=federation, **where)
    assert resumed.summary["rounds"] == 4
    assert resumed.summary["model_sha256"] == whole.summary["model_sha256"]
