"""One Ray cluster for all tests: two nodes of one CPU each on this machine, listening on 127.0.0.1 only."""

from __future__ import annotations

from typing import Any

import pytest

from undrift.engine.cluster import HOME, ONE_MACHINE

NODE: dict[str, Any] = {"node_ip_address": HOME, "object_store_memory": 200 << 20}


@pytest.fixture(scope="session")
def cluster():
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    patch = pytest.MonkeyPatch()
    for name, value in {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", ONE_MACHINE: "0"}.items():
        patch.setenv(name, value)
    patch.setattr(ray._private.ray_constants, "ENABLE_RAY_CLUSTER", False)
    made = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 1, "include_dashboard": False})
    made.add_node(**NODE, num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()
    patch.undo()


@pytest.fixture(scope="session")
def node():
    """The options of one more node."""
    return NODE


@pytest.fixture
def on_ray(cluster):
    """The options of a run on this cluster."""
    return {"engine": "ray", "ray_address": cluster.address, "out": False}
