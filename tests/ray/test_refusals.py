"""What cannot work on a cluster is refused in one sentence, before the first round, and leaves no run behind."""

from __future__ import annotations

import importlib
import socket
import sys
import time

import numpy as np
import pytest

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.engine import ray as engine
from undrift.engine.ray import unit_of
from undrift.testing import tiny

pytestmark = pytest.mark.ray

SETTINGS = {"rounds": 2, "engine": "ray"}


def refused(match: str, out, federation=None, **settings) -> None:
    with pytest.raises(BadRequest, match=match) as error:
        ud.run("fedavg", federation or tiny(), out=out, **SETTINGS, **settings)
    assert "\n" not in str(error.value)
    assert not out.exists()


def test_an_address_without_an_answer_is_refused_within_ten_seconds(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    began = time.monotonic()
    refused(f"no Ray cluster answers at 127.0.0.1:{port}; start one", tmp_path / "run", ray_address=f"127.0.0.1:{port}")
    assert time.monotonic() - began < 10


def test_an_address_where_another_program_listens_is_refused_within_ten_seconds(tmp_path, cluster):
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        port = mute.getsockname()[1]
        began = time.monotonic()
        refused(f"no Ray cluster answers at 127.0.0.1:{port}", tmp_path / "run", ray_address=f"127.0.0.1:{port}")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("address", ["nowhere", "host:port"])
def test_what_is_no_address_is_refused(tmp_path, address):
    refused(f"a Ray address is HOST:PORT, auto or local, not '{address}'", tmp_path / "run", ray_address=address)


def test_a_ray_client_address_is_refused(tmp_path):
    refused("is a Ray Client's address", tmp_path / "run", ray_address="ray://127.0.0.1:10001")


def test_other_versions_on_a_node_are_refused(tmp_path, cluster, monkeypatch):
    theirs = engine.versions()
    monkeypatch.setattr(engine, "versions", lambda: {**theirs, "torch": "1.0"})
    refused(rf"node 127\.0\.0\.1 \(\w+\) has torch {theirs['torch'].replace('+', '.')} and the driver 1\.0; install the same",
            tmp_path / "run", ray_address=cluster.address)  # fmt: skip


def test_another_ray_on_the_cluster_is_refused(tmp_path, cluster, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "__version__", "9.9.9")
    refused("has another Ray or Python: Version mismatch", tmp_path / "run", ray_address=cluster.address)


def test_a_worker_that_cannot_import_the_users_module_says_so(tmp_path, cluster, monkeypatch):
    source = tmp_path / "only_with_the_driver.py"
    source.write_text("def load(client):\n    return None\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("only_with_the_driver")
    source.unlink()  # as on another machine
    federation = ud.Federation.from_function(
        module.load, [8, 8], (np.zeros((4, 5), np.float32), np.array([0, 1, 2, 0]))
    )
    refused(r"node 127\.0\.0\.1 \(\w+\) cannot import 'only_with_the_driver', which this run needs; install it there",
            tmp_path / "run", federation, ray_address=cluster.address)  # fmt: skip
    sys.modules.pop("only_with_the_driver")


def test_one_actor_per_gpu_where_there_are_any_else_per_cpu():
    assert unit_of({"CPU": 8.0}, "auto") == ("CPU", "cpu")
    assert unit_of({"CPU": 8.0, "GPU": 2.0}, "auto") == ("GPU", "cuda")
    assert unit_of({"CPU": 8.0, "GPU": 2.0}, "cpu") == ("CPU", "cpu")
    with pytest.raises(BadRequest, match="no node of the cluster has a GPU"):
        unit_of({"CPU": 8.0}, "cuda")
