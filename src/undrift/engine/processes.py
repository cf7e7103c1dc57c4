"""One single-threaded worker process per core: the model, the data and the method travel once, vectors through mapped
memory, clients longest first. A worker that dies is replaced and its work is redone, with the same result."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any

from undrift.engine.arena import Arena, Windows, pack, pack_objects, unpack
from undrift.engine.payload import runtime_payload
from undrift.engine.pool import Pool, lost_clients
from undrift.engine.spawn import Worker, start_worker, stop_workers

EXCHANGES = itertools.count()


class Processes(Pool):
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

    def open(self, runtime: Any, states: Any) -> Processes:
        """Give every worker its site; they open it while the parent goes on."""
        self.runtime, self.states = runtime, states
        self._data, self._arena, self._windows = Arena(), Arena(), Windows()  # the data's arena never turns
        self._site = pack_objects(("site", 0, runtime_payload(runtime)), self._data)
        # Driver and workers map one copy of the data.
        runtime.federation.move_arrays(lambda tensor: self._windows.tensor(self._data.place(tensor)))
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

    def begin(self, orders: Sequence[Any]) -> None:
        self._exchange = next(EXCHANGES)
        self._arena.turn()

    def answers(self) -> Iterator[tuple[Worker, Any]]:
        pipes: dict[Any, Worker] = {worker.pipe: worker for worker in self.workers}
        for pipe in wait(list(pipes)):
            worker = pipes[pipe]
            try:
                kind, number, content = unpack(worker.pipe.recv_bytes(), self._windows)
            except (EOFError, OSError):
                yield worker, None
                continue
            if kind == "done" and number == self._exchange:
                worker.chunks.pop(worker.order.popleft(), None)
                yield worker, content

    def send(self, worker: Worker, orders: Sequence[Any], positions: list[int]) -> None:
        number = positions[0]
        worker.chunks[number] = positions
        worker.order.append(number)
        content = [(position, self.with_state(orders[position])) for position in positions]
        with contextlib.suppress(OSError):  # a dead worker shows when its answer is waited for
            worker.pipe.send_bytes(pack(("work", self._exchange, content), self._arena))

    def replace(self, worker: Worker, orders: Sequence[Any]) -> list[list[int]]:
        """A dead worker's place is taken by a new one; returns the work it left."""
        worker.pipe.close()
        code = worker.process.wait()
        self._windows.forget()
        lost = list(worker.chunks.values())
        about = lost_clients(lost, orders)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._events.append(("worker", f"a worker died ({how}){about}; it was replaced and its work redone"))
        fresh = start_worker()
        assert self._site is not None
        fresh.pipe.send_bytes(self._site)
        self.workers[self.workers.index(worker)] = fresh
        return lost

    def close(self) -> None:
        if not self.lent:
            stop_workers(self.workers)
