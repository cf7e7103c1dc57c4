"""The Ray engine: long-lived actors of a Ray cluster, one thread each, that hold the runtime and serve orders.

Data, network and method are put into the object store once. Ray brings them to every node once, and all actors of a
node read the same mapped copy. What several orders of an exchange share (the vector, the broadcast) goes through the
store once per exchange. What differs is sent with its order. Client states and the record stay with the driver, so a
run can be resumed on any other engine.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import undrift
from undrift.core.errors import BadRequest, RunFailed
from undrift.engine.arena import pack, pack_objects, unpack
from undrift.engine.cluster import connect, differing, missing
from undrift.engine.object_store import ArrayReader, ArrayWriter, array_of, bytes_of, large_tensors
from undrift.engine.payload import open_runtime, runtime_payload
from undrift.engine.pool import TRIES, Pool, lost_clients
from undrift.engine.spawn import KEEP_PAGES
from undrift.round.lockstep.serve import serve_chunk
from undrift.round.orders import Order, Reply

WAIT = 60.0  # seconds for a first actor, and for another one when all have died
GRACE = 10.0  # seconds the others have after the first
POLL = 1.0  # seconds between two checks of the cluster's resources


def versions() -> dict[str, str]:
    """The versions that must agree on all nodes: others give other bits, or cannot unpickle the messages."""
    return {
        "undrift": undrift.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
    }  # Ray compares its own version


class Actor:
    """The actor's side: a worker process of the cluster with its runtime."""

    def __init__(self) -> None:
        torch.set_num_threads(1)

    def hello(self) -> tuple[str, dict[str, str]]:
        import ray

        return ray.get_runtime_context().get_node_id(), versions()

    def open(self, content: tuple[list[str], bytes, list[np.ndarray]]) -> None:
        path, message, arrays = content
        sys.path.extend(place for place in path if place not in sys.path)  # before the user's modules are imported
        self.runtime = open_runtime(unpack(message, ArrayReader(arrays, copy=False)))

    def work(self, message: bytes, arrays: list[np.ndarray], *common: np.ndarray) -> tuple[bytes, list[np.ndarray]]:
        writer = ArrayWriter()
        orders = unpack(message, ArrayReader(arrays, common))
        return pack(serve_chunk(self.runtime, orders), writer), writer.arrays


@dataclass(eq=False)
class RayWorker:
    """The driver's side of an actor."""

    actor: Any
    greeting: Any  # a Ray reference to its node and versions
    opened: Any  # a Ray reference that is ready when the runtime is open
    node: str = ""  # Ray's id of its node
    chunks: dict[Any, list[int]] = field(default_factory=dict)
    given: int = 0


class Ray(Pool):
    name = "ray"

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        device: str = "auto",
        say: Callable[[str], None] | None = None,
        keep_alive: bool = False,
    ) -> None:
        """Join a cluster and start actors. With `keep_alive` the engine survives the end of a run, the next run gives
        it another runtime, and the caller ends it with `leave`."""
        self.requested, self.keep_alive = workers, keep_alive
        self.workers: list[RayWorker] = []
        self._starting: list[RayWorker] = []  # their runtime is not open yet, or they wait for resources
        self._common: dict[int, Any] = {}
        self._events: list[tuple[str, str]] = []
        self._refused = self._died_early = 0
        self._placed: Any = None
        self.bytes: Counter[str] = Counter()  # what was sent: placed, common, orders, replies
        self.ray, cluster, self._leave_cluster = connect(address, workers, say)
        try:
            resources = self.ray.cluster_resources()
            self.unit, self.device = unit_of(resources, device)
            self._remote = self.ray.remote(Actor).options(
                num_cpus=1,
                num_gpus=int(self.unit == "GPU"),
                scheduling_strategy="SPREAD",
                max_restarts=0,
                runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **KEEP_PAGES}},
            )
            self._start_actors()
        except BaseException:
            self.leave()
            raise
        nodes, count = sum(node["Alive"] for node in self.ray.nodes()), len(self._starting)
        self.plan_line = (
            f"engine ray: {cluster}, {nodes} node{'s' * (nodes > 1)}, {resources.get('CPU', 0):.0f} CPUs, "
            f"{resources.get('GPU', 0):.0f} GPUs; {count} actor{'s' * (count > 1)}, one thread each, on {self.device}"
        )

    def open(self, runtime: Any, states: Any) -> Ray:
        """Put data, network and method into the object store. The actors open them while the driver continues."""
        self.runtime, self.states = runtime, states
        self._running, self._last_worker = False, time.monotonic()
        writer = ArrayWriter()
        try:
            message = pack_objects({**runtime_payload(runtime), "device": self.device}, writer)
            self._placed = self.ray.put((sys.path, message, writer.arrays))
        except BaseException:
            self.close()
            raise
        self.bytes = Counter(placed=bytes_of(message, writer.arrays))
        self._starting, self.workers = [*self.workers, *self._starting], []
        for worker in self._starting:
            worker.chunks, worker.opened = {}, worker.actor.open.remote(self._placed)
        return self

    # ---- actors ----------------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Wait for the first actor, and a little for the others: the cluster may be busy with other work."""
        deadline = time.monotonic() + WAIT
        while self._starting and time.monotonic() < deadline:
            deadline = min(deadline, time.monotonic() + GRACE) if self.workers else deadline
            for _ in self.answers():
                pass
        if not self.workers:
            raise BadRequest(
                f"no actor could start within {WAIT:.0f} s: the cluster's {self.unit}s are taken; "
                "free some, or use another engine"
            )
        self._running = True

    def _start_actors(self) -> None:
        """Start actors up to the requested number, at most as many as the cluster has room for now."""
        self._checked = time.monotonic()
        room = int(self.ray.cluster_resources().get(self.unit, 0)) - self._refused
        for _ in range(min(self.requested or room, room) - len(self.workers) - len(self._starting)):
            actor = self._remote.remote()
            opened = None if self._placed is None else actor.open.remote(self._placed)
            self._starting.append(RayWorker(actor, actor.hello.remote(), opened))

    def _started(self, worker: RayWorker) -> None:
        """Handle an actor that has opened its runtime or failed to. A failure is an error before the first round. Later
        the engine does without that place."""
        errors = self.ray.exceptions
        self._starting.remove(worker)
        where = "a node"
        try:
            worker.node, theirs = self.ray.get(worker.greeting)
            where = f"node {self._node_name(worker.node)}"
            why = differing(where, theirs, versions())
            if not why:
                self.ray.get(worker.opened)
                self.workers.append(worker)
                return
        except errors.RayError as error:
            why = missing(where, str(error))
            if not why and isinstance(error, errors.RayTaskError):
                raise RunFailed(f"{where} could not open the runtime: {error}") from None
            if not why:  # it died, but another one may start
                self._died_early += 1
                if self._died_early >= TRIES:
                    raise RunFailed(
                        f"actors died {TRIES} times before they could work, the last one on {where}: {error}"
                    ) from None
                return
        self._kill(worker)
        if not self._running:
            raise BadRequest(why)
        self._refused += 1
        self._events.append(("node", f"{why}; it is not used"))

    def _node_name(self, node: str) -> str:
        """A node's name in messages: its address and the beginning of Ray's id."""
        return f"{next((n['NodeManagerAddress'] for n in self.ray.nodes() if n['NodeID'] == node), '?')} ({node[:8]})"

    def _node_alive(self, node: str) -> bool:
        """Whether a node still accepts connections. Ray itself notices a dead node late."""
        for entry in self.ray.nodes():
            if entry["NodeID"] == node and entry["Alive"]:
                with contextlib.suppress(OSError):
                    socket.create_connection((entry["NodeManagerAddress"], entry["NodeManagerPort"]), POLL).close()
                    return True
        return False

    def _kill(self, worker: RayWorker) -> None:
        with contextlib.suppress(Exception):  # it may be dead already
            self.ray.kill(worker.actor)

    # ---- an exchange -----------------------------------------------------------------------------------------

    def begin(self, orders: Sequence[Order]) -> None:
        if time.monotonic() - self._checked > POLL:
            self._start_actors()
        tensors = [tensor for order in orders for tensor in large_tensors([order.vector, order.server_messages])]
        times = Counter(map(id, tensors))
        common = {id(tensor): tensor for tensor in tensors if times[id(tensor)] > 1}
        self.bytes["common"] += sum(tensor.numel() * tensor.element_size() for tensor in common.values())
        self._common = {name: self.ray.put(array_of(tensor)) for name, tensor in common.items()}

    def send(self, worker: RayWorker, orders: Sequence[Order], positions: list[int]) -> None:
        writer = ArrayWriter(self._common)
        message = pack([(position, self.with_state(orders[position])) for position in positions], writer)
        worker.chunks[worker.actor.work.remote(message, writer.arrays, *writer.refs)] = positions
        self.bytes["orders"] += bytes_of(message, writer.arrays)

    def answers(self) -> Iterator[tuple[RayWorker, list[tuple[int, Reply]] | None]]:
        """The workers that answered or died within `POLL` seconds. New actors are added here too. All dead workers are
        found together, so that the work of one does not go to another dead one."""
        errors = self.ray.exceptions
        if time.monotonic() - self._checked > POLL:
            self._start_actors()
        busy = {ref: worker for worker in self.workers for ref in worker.chunks}
        starting = {worker.opened: worker for worker in self._starting}
        refs = [*busy, *starting]
        if refs and self.ray.wait(refs, timeout=POLL)[0]:
            done = self.ray.wait(refs, num_returns=len(refs), timeout=0)[0]
        else:
            done = []
            time.sleep(0 if refs else POLL)
        for ref in done:
            if ref in starting:
                self._started(starting[ref])
                continue
            worker = busy[ref]
            if ref not in worker.chunks:
                continue  # its node died, and the chunk was taken back
            try:
                message, arrays = self.ray.get(ref)
            except errors.RayTaskError as error:
                raise RunFailed(f"node {self._node_name(worker.node)} could not do its work: {error}") from None
            except errors.RayError:
                yield worker, None
                continue
            del worker.chunks[ref]
            self.bytes["replies"] += bytes_of(message, arrays)
            yield worker, unpack(message, ArrayReader(arrays))
        if self.workers or not self._running:
            self._last_worker = time.monotonic()
        elif time.monotonic() - self._last_worker > WAIT:
            raise RunFailed(
                f"no actor has been left for {WAIT:.0f} s; `undrift resume` continues from the last checkpoint"
            )

    def replace(self, worker: RayWorker, orders: Sequence[Order]) -> list[list[int]]:
        """Remove a dead actor, and with a dead node all actors on it. Return the chunks that are lost."""
        node_alive = self._node_alive(worker.node)
        gone = [other for other in self.workers if other is worker or (other.node == worker.node and not node_alive)]
        self.workers = [other for other in self.workers if other not in gone]
        lost = [positions for other in gone for positions in other.chunks.values()]
        for other in gone:
            other.chunks = {}
            self._kill(other)
        about, where = lost_clients(lost, orders), self._node_name(worker.node)
        if node_alive:
            self._events.append(
                ("worker", f"an actor on node {where} died{about}; it was replaced and its work redone")
            )
        else:
            actors = f"{len(gone)} actor{'s' * (len(gone) > 1)}"
            self._events.append(
                ("node", f"node {where} died with {actors}{about}; their work was redone on other nodes")
            )
        self._start_actors()
        return lost

    def close(self) -> None:
        if not self.keep_alive:
            self.leave()

    def leave(self) -> None:
        """Kill all actors, and leave the cluster (or end it, if it was started for this run)."""
        for worker in (*self.workers, *self._starting):
            self._kill(worker)
        self.workers, self._starting, self._common, self._placed = [], [], {}, None
        if self._leave_cluster:
            self.ray.shutdown()


def unit_of(resources: dict[str, float], device: str) -> tuple[str, str]:
    """(the resource an actor takes, its device): one actor per GPU if the cluster has any, else one per CPU. Never
    both, because the CPUs would hold up every round and give other bits than the GPUs."""
    if device == "cpu" or (device == "auto" and not resources.get("GPU")):
        return "CPU", "cpu"
    if not resources.get("GPU"):
        raise BadRequest(f"--device {device}, but no node of the cluster has a GPU; use --device cpu")
    return "GPU", "cuda"
