"""One single-threaded worker process per core: the model, the data and the method travel once, vectors through mapped
memory, clients longest first. A worker that dies is replaced and its work is redone, with the same result."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any

from undrift.engine.arena import Arena, Windows, pack, pack_objects, unpack
from undrift.engine.base import Engine
from undrift.engine.payload import site_payload
from undrift.engine.spawn import Worker, start_worker, stop_workers
from undrift.errors import RunFailed

TRIES = 3  # for one order, before the run gives up
AHEAD = 2  # chunks a worker has at hand, so that it never waits for the next
EXCHANGES = itertools.count()
SHRINK = 4  # a piece is this part of a worker's share of what is left


class Processes(Engine):
    name = "processes"

    def __init__(self, workers: list[Worker], why: str = "asked for", lent: bool = False) -> None:
        """`lent` workers stay alive when this run ends: the next one gives them another site."""
        self.workers, self.count, self.lent = workers, len(workers), lent
        self.plan_line = (
            f"engine processes: {self.count} worker{'s' * (self.count > 1)}, one thread each, on cpu ({why})"
        )
        self._exchange = -1
        self._events: list[tuple[str, str]] = []
        self._site: bytes | None = None

    def open(self, site: Any, states: Any) -> Processes:
        """Give every worker its site; they open it while the parent goes on."""
        self.site, self.states = site, states
        self._data, self._arena, self._windows = Arena(), Arena(), Windows()  # the data's arena never turns
        self._site = pack_objects(("site", 0, site_payload(site)), self._data)
        site.federation.map(lambda tensor: self._windows.tensor(self._data.place(tensor)))  # one copy for everybody
        self._data.forget()
        for worker in self.workers:
            worker.chunks.clear()
            worker.order.clear()
            with contextlib.suppress(OSError):
                worker.pipe.send_bytes(self._site)
        return self

    def ready(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.pipe.poll(60.0)  # "ready", or the end of the pipe: `work` finds out which

    def work(self, orders: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        self._exchange = next(EXCHANGES)
        self._arena.turn()
        for worker in self.workers:
            worker.given = 0
        queue = deque(chunked(orders, self.count))
        tries = [0] * len(orders)
        left = len(orders)
        while left:
            while queue and (free := self._next(len(queue))):
                self._send(free, orders, queue.popleft())
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

    def _next(self, queued: int) -> Worker | None:
        """Who gets the next piece: whoever has nothing to do; else, ahead of time, whoever was given the least so far (it
        will be free first, if sizes tell). The last pieces are not given ahead: sizes do not tell everything."""
        idle = [worker for worker in self.workers if not worker.chunks]
        worker = min(idle or self.workers, key=lambda worker: worker.given)
        return worker if idle or (queued > self.count and len(worker.chunks) < AHEAD) else None

    def _send(self, worker: Worker, orders: Sequence[Any], positions: list[int]) -> None:
        number = positions[0]
        worker.chunks[number] = positions
        worker.order.append(number)
        worker.given += sum(orders[position].size for position in positions)
        content = [(position, self.with_state(orders[position])) for position in positions]
        with contextlib.suppress(OSError):  # a dead worker shows when its answer is waited for
            worker.pipe.send_bytes(pack(("work", self._exchange, content), self._arena))
        for position in positions:
            orders[position].state = None

    def _replace(self, worker: Worker, orders: Sequence[Any]) -> list[list[int]]:
        """A dead worker's place is taken by a new one; returns the work it left."""
        worker.pipe.close()
        code = worker.process.wait()
        self._windows.forget()
        lost = list(worker.chunks.values())
        clients = [orders[p].client for chunk in lost for p in chunk if orders[p].work != "judge"]
        about = f" over client{'s' * (len(clients) > 1)} {', '.join(map(str, clients[:5]))}" if clients else ""
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._events.append(("worker", f"a worker died ({how}){about}; it was replaced and its work redone"))
        fresh = start_worker()
        assert self._site is not None
        fresh.pipe.send_bytes(self._site)
        self.workers[self.workers.index(worker)] = fresh
        return lost

    def events(self) -> list[tuple[str, str]]:
        said, self._events = self._events, []
        return said

    def close(self) -> None:
        if not self.lent:
            stop_workers(self.workers)


def chunked(orders: Sequence[Any], workers: int) -> list[list[int]]:
    """Positions, longest first, in pieces that shrink with what is left: a small order alone would cost more to send than
    to do, and large pieces at the end would leave the other workers idle."""
    queue = sorted(range(len(orders)), key=lambda position: (-orders[position].size, position))
    left = sum(order.size for order in orders)
    chunks: list[list[int]] = []
    goal = cost = 0.0
    for position in queue:
        size = orders[position].size
        if not chunks or cost + size > goal:
            left -= cost
            chunks.append([])
            goal, cost = left / (workers * SHRINK), 0.0
        chunks[-1].append(position)
        cost += size
    return chunks
