"""A run uses the cluster as it is, continues after a death, leaves no actor behind, and can be resumed there."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import undrift as ud
from undrift.contract.parts import Job, Objective
from undrift.core.errors import RunFailed
from undrift.experiment.callback import RunCallback
from undrift.testing import small_network, tiny

pytestmark = pytest.mark.ray

SETTINGS = {
    "rounds": 4,
    "epochs": 2,
    "batch": 8,
    "cohort": 1.0,
    "evaluate_every": 2,
    "model": lambda: small_network(5, 3),
}


class AfterRound(RunCallback):
    """Keeps the engine and calls a function after a round."""

    def __init__(self, **after):
        self.after = {int(name[1:]): action for name, action in after.items()}

    def on_start(self, setup, engine):
        self.engine = engine

    def on_round(self, round, rounds, seconds, accuracy):
        self.after.get(round, lambda: None)()


@dataclass(frozen=True)
class WaitsOnNode(Objective):
    """Clients on the node that a file names wait in round 2, so that the node dies in mid-round."""

    doomed: str = ""

    def before_training(self, job: Job, state, server_message):
        if self.doomed and job.round == 2:
            import ray

            if ray.get_runtime_context().get_node_id() == Path(self.doomed).read_text():
                time.sleep(60)


def test_a_node_that_joins_is_used_and_one_that_dies_in_mid_round_is_named_and_its_work_redone(
    cluster, node, on_ray, tmp_path
):
    federation = tiny(clients=8)
    settings = SETTINGS
    calm = ud.run(WaitsOnNode(), federation, engine="inline", out=False, **settings)
    third = []

    def join():
        third.append(cluster.add_node(**node, num_cpus=2))
        until = time.monotonic() + 60
        while len(callback.engine.workers) < 4 and time.monotonic() < until:
            list(callback.engine.answers())  # no worker is busy between rounds, so this only adds new actors
        assert len(callback.engine.workers) == 4
        (tmp_path / "doomed").write_text(third[0].node_id)

    def kill():
        threading.Timer(0.2, lambda: cluster.remove_node(third[0], allow_graceful=False)).start()

    callback = AfterRound(_0=join, _1=kill)
    hit = ud.run(WaitsOnNode(str(tmp_path / "doomed")), federation, callback=callback, **on_ray, **settings)
    assert calm.summary["model_sha256"] == hit.summary["model_sha256"]
    (failure,) = hit.summary["failures"]
    assert (failure["round"], failure["client"], failure["kind"]) == (2, None, "node")
    assert failure["detail"].startswith(f"node 127.0.0.1 ({third[0].node_id[:8]}) died with 2 actors over client")


def test_an_actor_that_dies_on_every_try_ends_the_run_with_a_sentence(tmp_path, on_ray):
    with pytest.raises(RunFailed, match="workers died 3 times over the work of client 2 in round 1"):
        ud.run(Deadly(), tiny(clients=4), **on_ray, **SETTINGS)


@dataclass(frozen=True)
class Deadly(Objective):
    """Kills its own process in round 1 at client 2."""

    def before_training(self, job: Job, state, server_message):
        if job.round == 1 and job.client == 2:
            signal.raise_signal(signal.SIGKILL)


def test_ctrl_c_leaves_no_actor_behind_and_a_run_begun_inline_is_resumed_on_ray(cluster, on_ray, tmp_path):
    import ray

    def stop():
        signal.raise_signal(signal.SIGINT)

    federation, settings = tiny(clients=4), {**SETTINGS, "checkpoint_every": 1}
    with pytest.raises(KeyboardInterrupt):
        ud.run("scaffold", federation, callback=AfterRound(_1=stop), **on_ray, **settings)
    assert not ray.is_initialized()
    whole = ud.run("scaffold", federation, engine="inline", out=tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        ud.run("scaffold", federation, engine="inline", out=tmp_path / "run", callback=AfterRound(_1=stop), **settings)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        until = time.monotonic() + 10
        while ray.available_resources().get("CPU", 0) < ray.cluster_resources()["CPU"] and time.monotonic() < until:
            time.sleep(0.1)
        assert ray.available_resources()["CPU"] == ray.cluster_resources()["CPU"]
        # This process has joined the cluster before the run, so the run does not leave it.
        resumed = ud.resume(tmp_path / "run", federation=federation, model=SETTINGS["model"], engine="ray")
        assert ray.is_initialized()
    finally:
        ray.shutdown()
    assert resumed.summary["rounds"] == 4
    assert resumed.summary["model_sha256"] == whole.summary["model_sha256"]
