"""A pool of processes for whole runs: one process per core, each running one run at a time on one thread.

Runs exchange nothing, so every core stays busy. When fewer runs are left than would fill the cores evenly, a few more are
started than there are cores, and the operating system shares the cores among them. When there are fewer runs than cores
from the start, each run gets its share of workers. A federation lies once in memory that all processes map.

    python -m undrift.study.run_pool FD PARENT      is such a process
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undrift.engine.spawn import Worker, start_worker, stop_workers
from undrift.experiment.callback import RunCallback

if TYPE_CHECKING:
    from undrift.study.tasks import Federations, Row, StudyCallback, Task

EXTRA_RUNS = 4  # at most so many runs beyond the number of cores, at the end
STOP_SECONDS = 20.0  # for an interrupted run to make its last round durable


@dataclass
class Slot:
    """A process of the pool, and the task that it runs."""

    worker: Worker
    task: Task | None = None


def run_together(
    tasks: Sequence[Task],
    folder: Path,
    federations: Federations,
    cores: int,
    callback: StudyCallback,
    store_row: Callable[[Task, Row], None],
) -> float:
    """Run all tasks. Returns the wall seconds from the moment when the processes are ready."""
    extra = min(cores - 1, EXTRA_RUNS, max(0, len(tasks) - cores))
    share = max(1, cores // len(tasks))
    each = f"each on {share} workers" if share > 1 else "each on one thread"
    callback.on_start(tasks, f"{min(len(tasks), cores)} runs at a time, {each}", cores)
    slots = [Slot(start(share)) for _ in range(min(len(tasks), cores + extra))]
    sender = TaskSender(federations)
    waiting, began = deque(tasks), time.perf_counter()
    try:
        for slot in slots:
            slot.worker.pipe.poll(60.0)  # "ready", or the end of the pipe
        began = time.perf_counter()
        while waiting or any(slot.task for slot in slots):
            busy = sum(slot.task is not None for slot in slots)
            most = cores if busy + len(waiting) > cores + extra else cores + extra
            for slot in slots:
                if slot.task is None and waiting and busy < most:
                    slot.task, busy = waiting.popleft(), busy + 1
                    sender.send(slot.worker.pipe, slot.task, folder)
            for pipe in wait([slot.worker.pipe for slot in slots], 0.5):
                slot = next(slot for slot in slots if slot.worker.pipe is pipe)
                receive(slot, folder, share, callback, store_row)
            sender.keep_only([*waiting, *[slot.task for slot in slots if slot.task]])
            callback.on_tick()
    except KeyboardInterrupt:
        stop_runs(slots)
        raise
    finally:
        stop_workers([slot.worker for slot in slots])
    return time.perf_counter() - began


def start(share: int) -> Worker:
    return start_worker("undrift.study.run_pool", UNDRIFT_CORES=str(share))


class TaskSender:
    """Sends tasks to processes. A federation is packed into shared memory once for all of them."""

    def __init__(self, federations: Federations) -> None:
        self.federations, self.packed = federations, dict[str, tuple[Any, bytes]]()

    def send(self, pipe: Connection, task: Task, folder: Path) -> None:
        import cloudpickle

        from undrift.engine.arena import Arena, MappedBlocks, pack_objects

        key = self.federations.key(task.settings)
        if key not in self.packed:
            federation, arena, windows = self.federations.of(task.settings), Arena(), MappedBlocks()
            self.packed[key] = arena, pack_objects(federation, arena)
            federation.move_arrays(lambda tensor: windows.tensor(arena.place(tensor)))
            arena.forget()
        pipe.send((sys.path, cloudpickle.dumps((task, folder)), key, self.packed[key][1]))

    def keep_only(self, tasks: Sequence[Task]) -> None:
        """Release the federations that none of these tasks needs."""
        needed = {self.federations.key(task.settings) for task in tasks}
        for key in set(self.packed) - needed:
            del self.packed[key]
        self.federations.keep_only(tasks)


def receive(
    slot: Slot, folder: Path, share: int, callback: StudyCallback, store_row: Callable[[Task, Row], None]
) -> None:
    """Handle one message of a process. A process that died is replaced, and its run is marked as failed."""
    from undrift.study.tasks import failed_row

    try:
        kind, content = slot.worker.pipe.recv()
    except (EOFError, OSError):
        code = slot.worker.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        task, slot.task, slot.worker = slot.task, None, start(share)
        if task is not None:
            store_row(task, failed_row(task, folder / task.name, f"the process that ran it died ({how})"))
        return
    if slot.task is not None and kind == "round":
        callback.on_round(slot.task, *content)
    elif slot.task is not None and kind == "row":
        task, slot.task = slot.task, None
        store_row(task, content)


def stop_runs(slots: Sequence[Slot]) -> None:
    """Ask every run to stop, and wait until its last round is durable. A second Ctrl-C does not wait."""
    busy = [slot for slot in slots if slot.task is not None]
    for slot in busy:
        slot.worker.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    for slot in busy:
        with contextlib.suppress(Exception):
            slot.worker.process.wait(max(0.1, deadline - time.monotonic()))


# ---- the process -----------------------------------------------------------------------------------------------------


class StopSignal:
    """The handler of SIGTERM: interrupts the run, and remembers that it did. An extension module that is being loaded
    swallows an exception raised meanwhile (numpy.random does), and without the flag the run would continue."""

    received = False

    def __call__(self, *_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.received = True
        raise KeyboardInterrupt


class Reporter(RunCallback):
    """In a process of the pool: reports rounds to the parent, at most five times a second."""

    def __init__(self, pipe: Connection, stop: StopSignal) -> None:
        self.pipe, self.stop, self.last = pipe, stop, 0.0

    def on_round(self, round: int, rounds: int, seconds: float, headline: float | None) -> None:
        if self.stop.received:
            raise KeyboardInterrupt
        if time.monotonic() - self.last > 0.2 or round + 1 == rounds:
            self.last = time.monotonic()
            self.pipe.send(("round", (round + 1, headline)))


def main() -> None:
    pipe = Connection(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, with SIGTERM
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: die with the parent
    if os.getppid() != int(sys.argv[2]):
        sys.exit(0)

    import cloudpickle
    import torch

    torch.set_num_threads(1)
    from undrift.engine.arena import MappedBlocks, unpack
    from undrift.experiment import resume as reopen  # noqa: F401 - imported before the clock starts
    from undrift.study.tasks import failed_row, run_task

    stop = StopSignal()
    signal.signal(signal.SIGTERM, stop)
    federation_key, federation = "", None
    pipe.send(("ready", None))
    while not stop.received:
        try:
            data = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        if not data:
            return
        path, objects, key, packed = cloudpickle.loads(data)
        sys.path[:] = [*sys.path, *[place for place in path if place not in sys.path]]
        task, folder = cloudpickle.loads(objects)
        if key != federation_key:
            federation_key, federation = key, unpack(packed, MappedBlocks())
        assert federation is not None
        try:
            row = run_task(task, folder, federation, Reporter(pipe, stop))
        except Exception as error:  # a bug: this run fails, the others continue
            import traceback

            row = failed_row(task, folder / task.name, f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}")
        pipe.send(("row", row))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):  # stopped, or the parent is gone
        main()
