"""The processes engine: one single-threaded worker process per core. Model, data and method are sent once, vectors go
through mapped memory, the largest clients go first. A worker that dies is replaced and its work redone, with the same
result."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any

from undrift.contract.context import Tree
from undrift.engine.arena import Arena, MappedBlocks, Reference, mapped_tensors, pack, pack_objects, tensors_in, unpack
from undrift.engine.payload import runtime_payload
from undrift.engine.pool import Pool, lost_clients
from undrift.engine.spawn import Worker, start_worker, stop_workers
from undrift.round.orders import Reply

EXCHANGES = itertools.count()


class Processes(Pool):
    name = "processes"

    def __init__(self, workers: list[Worker], why: str = "asked for", keep_alive: bool = False) -> None:
        """With `keep_alive` the workers survive the end of this run, and the next run sends them its runtime."""
        self.workers, self.count, self.keep_alive = workers, len(workers), keep_alive
        self.why = why
        self._exchange = -1
        self._events: list[tuple[str, str]] = []
        self._runtime_message: bytes | None = None
        self._state_places: dict[int, list[Reference]] = {}  # of the states in the orders of a chunk

    def open(self, runtime: Any, states: Any) -> Processes:
        """Send every worker the runtime. The workers open it while the driver continues."""
        self.runtime, self.states = runtime, states
        several = "s" * (self.count > 1)
        self.plan_line = (
            f"engine processes: {self.count} worker{several}, one thread each, on {runtime.model.device} ({self.why})"
        )
        # The data's arena never turns, so its tensors stay valid. They are mapped apart from `_blocks`, which gives memory back.
        self._data, self._arena, self._blocks, data_blocks = Arena(), Arena(), MappedBlocks(), MappedBlocks()
        content = runtime_payload(runtime)
        self._frozen, places = Arena(), dict[str, Reference]()
        for name, tensor in content["frozen"].items():
            places[name] = self._frozen.place(tensor)
        self._runtime_message = pack_objects(("runtime", 0, content | {"frozen": places}), self._data)
        self._frozen.forget()
        frozen = runtime.model.frozen
        frozen.take(mapped_tensors(places), frozen.digest)  # driver and workers map one copy
        # Driver and workers map one copy of the data and of Θ⁰.
        runtime.federation.move_arrays(lambda tensor: data_blocks.tensor(self._data.place(tensor)))
        runtime.initial = data_blocks.tensor(self._data.place(runtime.initial)).to(runtime.model.device)
        self._data.forget()
        for worker in self.workers:
            worker.chunks.clear()
            worker.order.clear()
            with contextlib.suppress(OSError):
                worker.pipe.send_bytes(self._runtime_message)
        return self

    def ready(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.pipe.poll(60.0)  # "ready", or the end of the pipe: `answers` handles both

    def begin(self, orders: Sequence[Any]) -> None:
        self._exchange = next(EXCHANGES)
        self._state_places.clear()
        self._arena.turn()

    def answers(self) -> Iterator[tuple[Worker, Any]]:
        pipes: dict[Any, Worker] = {worker.pipe: worker for worker in self.workers}
        for pipe in wait(list(pipes)):
            worker = pipes[pipe]
            try:
                kind, number, content = unpack(worker.pipe.recv_bytes(), self._blocks)
            except (EOFError, OSError):
                yield worker, None
                continue
            if kind == "done" and number == self._exchange:
                chunk = worker.order.popleft()
                worker.chunks.pop(chunk, None)
                for reference in self._state_places.pop(chunk, ()):
                    self._arena.release(reference)
                yield worker, content

    def send(self, worker: Worker, orders: Sequence[Any], positions: list[int]) -> None:
        number = positions[0]
        worker.chunks[number] = positions
        worker.order.append(number)
        content = [(position, self.with_state(orders[position])) for position in positions]
        packed = pack(("work", self._exchange, content), self._arena)
        # A state goes to one worker only: its copy here is dropped now, the one in the arena when the worker has answered.
        states = [tensor for _, order in content for tensor in tensors_in(order.state)]
        self._state_places[number] = [self._arena.place(tensor) for tensor in states]
        self._arena.forget(states)
        with contextlib.suppress(OSError):  # `answers` notices a dead worker
            worker.pipe.send_bytes(packed)

    def release(self, reply: Reply, state: Tree) -> None:
        if state is None:  # most methods keep no state of a client
            return
        needed = {tensor.data_ptr() for tensor in tensors_in([reply.vector, reply.client_messages])}
        self._blocks.release(tensor for tensor in tensors_in(state) if tensor.data_ptr() not in needed)

    def aggregated(self, replies: Sequence[Reply]) -> None:
        self._blocks.release(tensors_in([[reply.vector, reply.client_messages] for reply in replies]))

    def replace(self, worker: Worker, orders: Sequence[Any]) -> list[list[int]]:
        """Replace a dead worker by a new one and return the chunks it left."""
        worker.pipe.close()
        code = worker.process.wait()
        self._blocks.forget()
        lost = list(worker.chunks.values())
        about = lost_clients(lost, orders)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._events.append(("worker", f"a worker died ({how}){about}; it was replaced and its work redone"))
        fresh = start_worker()
        assert self._runtime_message is not None
        fresh.pipe.send_bytes(self._runtime_message)
        self.workers[self.workers.index(worker)] = fresh
        return lost

    def close(self) -> None:
        if not self.keep_alive:
            stop_workers(self.workers)
