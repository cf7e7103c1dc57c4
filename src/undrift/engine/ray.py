"""The same on a Ray cluster: long-lived actors, one thread each, that own the site and serve orders.

Data, network and method are put into the object store once: Ray brings them to every node once, and all actors of a node
look at the same mapped copy. What several orders of an exchange share (the vector, the broadcast) goes through the store
once per exchange; what differs travels with its order. Client states and the record stay with the driver, so a run
does not know where it ran: it can be resumed on any other engine.
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
from undrift.engine.parcel import Opened, Parcel, array_of, large_tensors, weight
from undrift.engine.payload import open_runtime, runtime_payload
from undrift.engine.pool import TRIES, Pool, lost_clients
from undrift.engine.spawn import KEEP_PAGES
from undrift.round.client import serve
from undrift.round.orders import Order, Reply

WAIT = 60.0  # seconds for a first actor, and for another one when all have died
GRACE = 10.0  # seconds the others have after the first
LOOK = 1.0  # seconds between two looks at what the cluster offers


def versions() -> dict[str, str]:
    """What must be the same everywhere: other versions give other bits, or cannot read what they are sent."""
    return {"undrift": undrift.__version__, "torch": torch.__version__, "numpy": np.__version__}  # Ray compares its own


class Actor:
    """A site in a process of the cluster."""

    def __init__(self) -> None:
        torch.set_num_threads(1)

    def hello(self) -> tuple[str, dict[str, str]]:
        import ray

        return ray.get_runtime_context().get_node_id(), versions()

    def open(self, content: tuple[list[str], bytes, list[np.ndarray]]) -> None:
        path, message, arrays = content
        sys.path.extend(place for place in path if place not in sys.path)  # before the user's modules are looked for
        self.runtime = open_runtime(unpack(message, Opened(arrays, copy=False)))

    def work(self, message: bytes, arrays: list[np.ndarray], *common: np.ndarray) -> tuple[bytes, list[np.ndarray]]:
        parcel = Parcel()
        orders = unpack(message, Opened(arrays, common))
        return pack([(position, serve(self.runtime, order)) for position, order in orders], parcel), parcel.arrays


@dataclass(eq=False)
class Member:
    """An actor as the driver knows it."""

    actor: Any
    said: Any  # its node and versions, to come
    opened: Any  # to come
    node: str = ""  # Ray's id of the node it lives on
    chunks: dict[Any, list[int]] = field(default_factory=dict)
    given: int = 0


class Ray(Pool):
    name = "ray"

    def __init__(self, address: str | None = None, workers: int | None = None, device: str = "auto",
                 say: Callable[[str], None] | None = None, lent: bool = False) -> None:  # fmt: skip
        """Join a cluster and call for actors. A `lent` engine stays when a run ends: the next one gives it another site,
        and whoever lent it calls `leave`."""
        self.asked, self.lent = workers, lent
        self.workers: list[Member] = []
        self._coming: list[Member] = []  # not open yet, or waiting for room
        self._common: dict[int, Any] = {}
        self._events: list[tuple[str, str]] = []
        self._refused = self._stillborn = 0
        self._site: Any = None
        self.bytes: Counter[str] = Counter()  # what travelled: placed, common, orders, replies
        self.ray, found, self._ours = connect(address, workers, say)
        try:
            resources = self.ray.cluster_resources()
            self.unit, self.device = unit_of(resources, device)
            self._remote = self.ray.remote(Actor).options(
                num_cpus=1, num_gpus=int(self.unit == "GPU"), scheduling_strategy="SPREAD", max_restarts=0,
                runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **KEEP_PAGES}},
            )  # fmt: skip
            self._recruit()
        except BaseException:
            self.leave()
            raise
        nodes, count = sum(node["Alive"] for node in self.ray.nodes()), len(self._coming)
        self.plan_line = (
            f"engine ray: {found}, {nodes} node{'s' * (nodes > 1)}, {resources.get('CPU', 0):.0f} CPUs, "
            f"{resources.get('GPU', 0):.0f} GPUs; {count} actor{'s' * (count > 1)}, one thread each, on {self.device}"
        )

    def open(self, runtime: Any, states: Any) -> Ray:
        """Place data, network and method in the cluster; the actors open them while the driver goes on."""
        self.states, self._running, self._last_seen = states, False, time.monotonic()
        parcel = Parcel()
        try:
            message = pack_objects({**runtime_payload(runtime), "device": self.device}, parcel)
            self._site = self.ray.put((sys.path, message, parcel.arrays))
        except BaseException:
            self.close()
            raise
        self.bytes = Counter(placed=weight(message, parcel.arrays))
        self._coming, self.workers = [*self.workers, *self._coming], []
        for member in self._coming:
            member.chunks, member.opened = {}, member.actor.open.remote(self._site)
        return self

    # ---- who works -------------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Wait for the first actor, and a little for the others: the cluster may be busy with somebody else's work."""
        deadline = time.monotonic() + WAIT
        while self._coming and time.monotonic() < deadline:
            deadline = min(deadline, time.monotonic() + GRACE) if self.workers else deadline
            for _ in self.answers():
                pass
        if not self.workers:
            raise BadRequest(f"no actor could start within {WAIT:.0f} s: the cluster's {self.unit}s are taken; "
                             "free some, or use another engine")  # fmt: skip
        self._running = True

    def _recruit(self) -> None:
        """As many actors as were asked for, at most as many as the cluster has room for now."""
        self._looked = time.monotonic()
        room = int(self.ray.cluster_resources().get(self.unit, 0)) - self._refused
        for _ in range(min(self.asked or room, room) - len(self.workers) - len(self._coming)):
            actor = self._remote.remote()
            opened = None if self._site is None else actor.open.remote(self._site)
            self._coming.append(Member(actor, actor.hello.remote(), opened))

    def _arrived(self, member: Member) -> None:
        """An actor has opened its site, or could not: before the first round that is an error, later a place less."""
        errors = self.ray.exceptions
        self._coming.remove(member)
        where = "a node"
        try:
            member.node, theirs = self.ray.get(member.said)
            where = f"node {self._named(member.node)}"
            why = differing(where, theirs, versions())
            if not why:
                self.ray.get(member.opened)
                self.workers.append(member)
                return
        except errors.RayError as error:
            why = missing(where, str(error))
            if not why and isinstance(error, errors.RayTaskError):
                raise RunFailed(f"{where} could not open the site: {error}") from None
            if not why:  # it died: another one may not
                self._stillborn += 1
                if self._stillborn >= TRIES:
                    raise RunFailed(
                        f"actors died {TRIES} times before they could work, the last one on {where}: {error}"
                    ) from None
                return
        self._dismiss(member)
        if not self._running:
            raise BadRequest(why)
        self._refused += 1
        self._events.append(("node", f"{why}; it is not used"))

    def _named(self, node: str) -> str:
        """A node for people: its address and the beginning of Ray's id."""
        return f"{next((n['NodeManagerAddress'] for n in self.ray.nodes() if n['NodeID'] == node), '?')} ({node[:8]})"

    def _lives(self, node: str) -> bool:
        """Whether a node still listens; Ray itself takes a while to give one up."""
        for entry in self.ray.nodes():
            if entry["NodeID"] == node and entry["Alive"]:
                with contextlib.suppress(OSError):
                    socket.create_connection((entry["NodeManagerAddress"], entry["NodeManagerPort"]), LOOK).close()
                    return True
        return False

    def _dismiss(self, member: Member) -> None:
        with contextlib.suppress(Exception):  # it may be dead already
            self.ray.kill(member.actor)

    # ---- an exchange -----------------------------------------------------------------------------------------

    def begin(self, orders: Sequence[Order]) -> None:
        if time.monotonic() - self._looked > LOOK:
            self._recruit()
        tensors = [tensor for order in orders for tensor in large_tensors([order.vector, order.server_messages])]
        times = Counter(map(id, tensors))
        common = {id(tensor): tensor for tensor in tensors if times[id(tensor)] > 1}
        self.bytes["common"] += sum(tensor.numel() * tensor.element_size() for tensor in common.values())
        self._common = {name: self.ray.put(array_of(tensor)) for name, tensor in common.items()}

    def send(self, worker: Member, orders: Sequence[Order], positions: list[int]) -> None:
        parcel = Parcel(self._common)
        message = pack([(position, self.with_state(orders[position])) for position in positions], parcel)
        worker.chunks[worker.actor.work.remote(message, parcel.arrays, *parcel.refs)] = positions
        self.bytes["orders"] += weight(message, parcel.arrays)

    def answers(self) -> Iterator[tuple[Member, list[tuple[int, Reply]] | None]]:
        """Whoever has answered, died or arrived within `LOOK`. All the dead of the moment are found together, so that
        their work does not go to another one of them."""
        errors = self.ray.exceptions
        if time.monotonic() - self._looked > LOOK:
            self._recruit()
        busy = {ref: member for member in self.workers for ref in member.chunks}
        coming = {member.opened: member for member in self._coming}
        refs = [*busy, *coming]
        if refs and self.ray.wait(refs, timeout=LOOK)[0]:
            done = self.ray.wait(refs, num_returns=len(refs), timeout=0)[0]
        else:
            done = []
            time.sleep(0 if refs else LOOK)
        for ref in done:
            if ref in coming:
                self._arrived(coming[ref])
                continue
            member = busy[ref]
            if ref not in member.chunks:
                continue  # taken back with its node
            try:
                message, arrays = self.ray.get(ref)
            except errors.RayTaskError as error:
                raise RunFailed(f"node {self._named(member.node)} could not do its work: {error}") from None
            except errors.RayError:
                yield member, None
                continue
            del member.chunks[ref]
            self.bytes["replies"] += weight(message, arrays)
            yield member, unpack(message, Opened(arrays))
        if self.workers or not self._running:
            self._last_seen = time.monotonic()
        elif time.monotonic() - self._last_seen > WAIT:
            raise RunFailed(
                f"no actor has been left for {WAIT:.0f} s; `undrift resume` goes on from the last checkpoint"
            )

    def replace(self, worker: Member, orders: Sequence[Order]) -> list[list[int]]:
        """Take out a dead actor, and with a dead node all that lived there."""
        lives = self._lives(worker.node)
        gone = [member for member in self.workers if member is worker or (member.node == worker.node and not lives)]
        self.workers = [member for member in self.workers if member not in gone]
        lost = [positions for member in gone for positions in member.chunks.values()]
        for member in gone:
            member.chunks = {}
            self._dismiss(member)
        about, where = lost_clients(lost, orders), self._named(worker.node)
        if lives:
            self._events.append(
                ("worker", f"an actor on node {where} died{about}; it was replaced and its work redone")
            )
        else:
            with_it = f"{len(gone)} actor{'s' * (len(gone) > 1)}"
            self._events.append(("node", f"node {where} died with {with_it}{about}; their work was redone elsewhere"))
        self._recruit()
        return lost

    def close(self) -> None:
        if not self.lent:
            self.leave()

    def leave(self) -> None:
        """No actor stays behind, and a cluster of our own ends."""
        for member in (*self.workers, *self._coming):
            self._dismiss(member)
        self.workers, self._coming, self._common, self._site = [], [], {}, None
        if self._ours:
            self.ray.shutdown()


def unit_of(resources: dict[str, float], device: str) -> tuple[str, str]:
    """What an actor takes, and where it computes: one per GPU where there are any, else one per CPU. Never both: the
    slow ones would hold up every round, and a CPU gives other bits than a GPU."""
    if device == "cpu" or (device == "auto" and not resources.get("GPU")):
        return "CPU", "cpu"
    if not resources.get("GPU"):
        raise BadRequest(f"--device {device}, but no node of the cluster has a GPU; use --device cpu")
    return "GPU", "cuda"
