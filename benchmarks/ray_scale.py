"""The ray engine relative to processes on workloads (a) and (b), the cost of an order, bytes, and predicted round times.

UNDRIFT_DATA=FOLDER python benchmarks/ray_scale.py [ratio] [orders] [model]      (extra `ray`; about three minutes)
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from undrift.bench.bare import Work
from undrift.bench.measure import UndriftLoop, all_works
from undrift.bench.scale import check_predictions, steady_work, time_in_turns
from undrift.engine.ray import Ray
from undrift.engine.spawn import cores


def ray(workers: int, address: str | None = None) -> Any:
    return Ray(address, workers).open


def ratio(name: str, work: Work, pairs: int) -> None:
    """Both engines run at the same time: rounds in turn on the same cohorts, store on, evaluation off."""
    with tempfile.TemporaryDirectory() as folder:
        theirs = UndriftLoop(work, 2, folder=Path(folder) / "processes")
        mine = UndriftLoop(work, 2, folder=Path(folder) / "ray", engine=ray(2))
        try:
            for _ in range(2):
                theirs.round(), mine.round()
            before, found = Counter(mine.engine.bytes), []
            for _ in range(pairs):
                found.append((theirs.round(), mine.round()))
            moved = {kind: (mine.engine.bytes[kind] - before[kind]) / pairs for kind in ("common", "orders", "replies")}
        finally:
            mine.close()
            theirs.close()
    quotients = [b / a for a, b in found]
    print(
        f"({name}) two workers: processes {statistics.median(a for a, _ in found):.3f} s, ray "
        f"{statistics.median(b for _, b in found):.3f} s, ratio {statistics.median(quotients):.3f} "
        f"(quartiles {', '.join(f'{q:.3f}' for q in statistics.quantiles(quotients, n=4))}; {pairs} pairs)"
    )
    print(
        f"({name}) bytes per round of {work.cohort} clients: "
        + ", ".join(f"{kind} {size:,.0f}" for kind, size in moved.items())
        + f"; placed once {mine.engine.bytes['placed']:,}",
        flush=True,
    )


def orders() -> None:
    """Clients with one sample each: the rest of the time is the order itself."""
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((400, 784), dtype=np.float32), draw.integers(0, 10, 400)
    for name, model, numbers in (("c", "logistic", "7,850"), ("a", "mlp", "178,110"), ("b", "cnn", "1,663,370")):
        ours = UndriftLoop(Work(name, model, 40, 25, x, y, np.split(np.arange(400), 400)), 0, engine=ray(1))
        try:
            alone = min((found for (found,) in time_in_turns([ours])), key=lambda one: one.seconds)
        finally:
            ours.close()
        print(
            f"an order with a model of {numbers} numbers: {1000 * alone.order:.2f} ms beside "
            f"{1000 * statistics.median(alone.clients):.2f} ms of the client's work",
            flush=True,
        )


def model() -> None:
    """Measure one actor; predict two actors and three nodes from it, then measure them."""
    import ray as library
    from ray.cluster_utils import Cluster

    from undrift.engine.cluster import HOME, ONE_MACHINE, environment

    library._private.ray_constants.ENABLE_RAY_CLUSTER = False  # 127.0.0.1 only
    with environment(**{"RAY_USAGE_STATS_ENABLED": "0", ONE_MACHINE: "0"}):
        node: dict[str, Any] = {"node_ip_address": HOME, "num_cpus": 1, "object_store_memory": 400 << 20}
        nodes = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        try:
            nodes.add_node(**node)
            nodes.add_node(**{**node, "num_cpus": 4})  # six actors in all, of which one, two or three work at a time
            # Three actors: one per node.
            several = [UndriftLoop(steady_work(), 0, engine=ray(actors, nodes.address)) for actors in (3, 2, 1)]
            try:
                found = check_predictions(several[::-1], cores(), 9)
            finally:
                for ours in several[::-1]:  # the one that joined the cluster first leaves it last
                    ours.close()
            for actors, one in enumerate(found, 1):
                where = "three nodes" if actors == 3 else f"{actors} actor{'s' * (actors > 1)}"
                print(
                    f"{where}: measured {one.seconds:.2f} s, model {one.predicted:.2f} s, ratio {one.ratio:.2f}; with so "
                    f"many workers on this machine a core is {one.crowded:.2f} times as slow, without Ray",
                    flush=True,
                )
        finally:
            nodes.shutdown()


if __name__ == "__main__":
    asked = sys.argv[1:] or ["ratio", "orders", "model"]
    if "ratio" in asked:
        works, data = all_works()
        print(f"data: {data}")
        ratio("b", works["b"], 9)
        ratio("a", works["a"], 40)
    if "orders" in asked:
        orders()
    if "model" in asked:
        model()
