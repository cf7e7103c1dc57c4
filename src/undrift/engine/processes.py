"""One single-threaded worker process per core: the model, the data and the method travel once, vectors through mapped
memory, clients longest first. A worker that dies is replaced and its work is redone, with the same result."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from undrift.engine.base import Engine
from undrift.errors import RunFailed

TRIES = 3  # for one order, before the run gives up
AHEAD = 2  # chunks a worker has at hand, so that it never waits for the next
CHUNKS = 8  # per worker and exchange: large enough to pay, small enough to balance


@dataclass
class Worker:
    process: subprocess.Popen[bytes]
    pipe: Connection
    chunks: dict[int, list[int]] = field(default_factory=dict)  # number -> positions it is working on
    order: deque[int] = field(default_factory=deque)


class Processes(Engine):
    name = "processes"

    def __init__(self, workers: int, why: str = "asked for") -> None:
        """Start the workers at once: they import torch while the parent does other things."""
        self.count = workers
        self.plan_line = f"engine processes: {workers} worker{'s' * (workers > 1)}, one thread each, on cpu ({why})"
        self.workers = [self._start() for _ in range(workers)]
        self._exchange = 0
        self._events: list[tuple[str, str]] = []
        self._site: bytes | None = None

    def open(self, site: Any, states: Any) -> Processes:
        """Give every worker its site; they open it while the parent goes on."""
        from undrift.engine.arena import Arena, Windows, pack_objects
        from undrift.engine.payload import site_payload

        self.site, self.states = site, states
        self._data, self._arena, self._windows = Arena(), Arena(), Windows()  # the data's arena never turns
        self._site = pack_objects(("site", 0, site_payload(site)), self._data)
        for worker in self.workers:
            worker.pipe.send_bytes(self._site)
        self._waiting = set(range(len(self.workers)))
        return self

    def _start(self) -> Worker:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        environment["PYTHONPATH"] = os.pathsep.join([package, environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        process = subprocess.Popen(
            [sys.executable, "-m", "undrift.engine.worker", str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        return Worker(process, Connection(ours.detach()))

    def work(self, orders: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        from undrift.engine.arena import unpack

        self._exchange += 1
        self._arena.turn()
        queue = deque(chunked(orders, self.count))
        tries = [0] * len(orders)
        left = len(orders)
        while left:
            for worker in self.workers:
                while queue and len(worker.chunks) < AHEAD:
                    self._send(worker, orders, queue.popleft())
            pipes: dict[Any, Worker] = {worker.pipe: worker for worker in self.workers}
            for pipe in wait(list(pipes)):
                worker = pipes[pipe]
                try:
                    kind, number, content = unpack(worker.pipe.recv_bytes(), self._windows)
                except (EOFError, OSError):
                    for positions in self._replace(worker, orders):
                        for position in positions:
                            tries[position] += 1
                            if tries[position] >= TRIES:
                                raise RunFailed(
                                    f"workers died {TRIES} times over the work of client {orders[position].client} in "
                                    f"round {orders[position].round}; `undrift resume` goes on from the last checkpoint"
                                ) from None
                            queue.appendleft([position])
                    continue
                if kind != "done" or number != self._exchange:
                    continue
                worker.chunks.pop(worker.order.popleft(), None)
                for position, reply in content:
                    left -= 1
                    yield position, reply

    def _send(self, worker: Worker, orders: Sequence[Any], positions: list[int]) -> None:
        from undrift.engine.arena import pack

        number = positions[0]
        worker.chunks[number] = positions
        worker.order.append(number)
        content = [(position, self.with_state(orders[position])) for position in positions]
        try:
            worker.pipe.send_bytes(pack(("work", self._exchange, content), self._arena))
        except OSError:
            pass  # it is dead; the wait for its answer will find out
        for position in positions:
            orders[position].state = None

    def _replace(self, worker: Worker, orders: Sequence[Any]) -> list[list[int]]:
        """A dead worker's place is taken by a new one; returns the work it left."""
        worker.pipe.close()
        code = worker.process.wait()
        self._windows.forget(worker.process.pid)
        lost = list(worker.chunks.values())
        clients = [orders[p].client for chunk in lost for p in chunk if orders[p].work != "judge"]
        about = f" over client{'s' * (len(clients) > 1)} {', '.join(map(str, clients[:5]))}" if clients else ""
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._events.append(("worker", f"a worker died ({how}){about}; it was replaced and its work redone"))
        fresh = self._start()
        assert self._site is not None
        fresh.pipe.send_bytes(self._site)
        self.workers[self.workers.index(worker)] = fresh
        return lost

    def events(self) -> list[tuple[str, str]]:
        said, self._events = self._events, []
        return said

    def close(self) -> None:
        for worker in self.workers:
            try:
                worker.pipe.send_bytes(b"")
                worker.pipe.close()
            except OSError:
                pass
        for worker in self.workers:
            try:
                worker.process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()


def chunked(orders: Sequence[Any], workers: int) -> list[list[int]]:
    """Positions, longest first, in pieces of about equal cost: a small order alone would cost more to send than to do."""
    queue = sorted(range(len(orders)), key=lambda position: (-orders[position].size, position))
    goal = sum(order.size for order in orders) / (workers * CHUNKS)
    chunks: list[list[int]] = []
    cost = 0.0
    for position in queue:
        if chunks and cost + orders[position].size <= goal:
            chunks[-1].append(position)
            cost += orders[position].size
        else:
            chunks.append([position])
            cost = orders[position].size
    return chunks
