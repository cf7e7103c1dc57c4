"""A pool of processes for whole runs: one process per core, each on one thread, with one run or one bundle at a time.

Runs exchange nothing, so every core stays busy. When fewer runs are left than would fill the cores evenly, a few more are
started than there are cores, and the operating system shares the cores among them. When there are fewer runs than cores
from the start, each run gets its share of workers. A federation lies once in memory that all processes map.

    python -m undrift.study.run_pool FD PARENT      is such a process
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undrift.engine.spawn import Worker, start_worker, stop_workers
from undrift.experiment.callback import RunCallback

if TYPE_CHECKING:
    from undrift.federation.federation import Federation
    from undrift.study.tasks import Federations, Row, StudyCallback, Task

EXTRA_RUNS = 4  # at most so many runs beyond the number of cores, at the end
STOP_SECONDS = 20.0  # for an interrupted run to make its last round durable


@dataclass
class Slot:
    """A process of the pool, and the tasks that it runs, by name."""

    worker: Worker
    tasks: dict[str, Task] = field(default_factory=dict)


def run_together(
    tasks: Sequence[Task],
    folder: Path,
    federations: Federations,
    cores: int,
    callback: StudyCallback,
    store_row: Callable[[Task, Row], None],
) -> float:
    """Run all tasks. Returns the wall seconds from the moment when the processes are ready."""
    from undrift.study.bundles import bundled, expected, said
    from undrift.study.tasks import WORTH_PROCESSES

    bundles = bundled(tasks, cores)
    extra = min(cores - 1, EXTRA_RUNS, max(0, len(bundles) - cores))
    share = max(1, cores // len(bundles))
    callback.on_start(
        tasks, said(bundles, cores, f"each on {share} workers" if share > 1 else "each on one thread"), cores
    )
    slots = [Slot(start(share)) for _ in range(min(len(bundles), cores))]
    sender = TaskSender(federations)
    waiting, began, left = deque(bundles), time.perf_counter(), len(tasks)
    try:
        for slot in slots:
            slot.worker.pipe.poll(60.0)  # "ready", or the end of the pipe
        began = time.perf_counter()
        while waiting or any(slot.tasks for slot in slots):
            busy = sum(bool(slot.tasks) for slot in slots)
            shared = (
                busy + len(waiting) <= cores + extra and sum(expected(bundle) for bundle in waiting) > WORTH_PROCESSES
            )
            most = cores + extra if shared else cores
            if waiting and busy == len(slots) < most:
                slots.append(Slot(start(share)))
            for slot in slots:
                if not slot.tasks and waiting and busy < most:
                    slot.tasks, busy = {task.name: task for task in waiting.popleft()}, busy + 1
                    with contextlib.suppress(OSError):  # it died: `receive` notices
                        sender.send(slot.worker.pipe, list(slot.tasks.values()), folder)
            for pipe in wait([slot.worker.pipe for slot in slots], 0.5):
                slot = next(slot for slot in slots if slot.worker.pipe is pipe)
                waiting.extendleft(receive(slot, folder, share, callback, store_row))
            unfinished = [task for some in (*waiting, *(slot.tasks.values() for slot in slots)) for task in some]
            if len(unfinished) < left:
                left = len(unfinished)
                sender.keep_only(unfinished)
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

    def send(self, pipe: Connection, tasks: Sequence[Task], folder: Path) -> None:
        import cloudpickle

        keys = [self.federations.key(task.settings) for task in tasks]
        packed = {key: self.pack(key, task) for key, task in zip(keys, tasks)}
        pipe.send((sys.path, cloudpickle.dumps((tasks, folder)), keys, packed))

    def pack(self, key: str, task: Task) -> bytes:
        from undrift.engine.arena import Arena, MappedBlocks, pack_objects

        if key not in self.packed:
            federation, arena, windows = self.federations.of(task.settings), Arena(), MappedBlocks()
            self.packed[key] = arena, pack_objects(federation, arena)
            federation.move_arrays(lambda tensor: windows.tensor(arena.place(tensor)))
            arena.forget()
        return self.packed[key][1]

    def keep_only(self, tasks: Sequence[Task]) -> None:
        """Release the federations that none of these tasks needs."""
        needed = {self.federations.key(task.settings) for task in tasks}
        for key in set(self.packed) - needed:
            del self.packed[key]
        self.federations.keep_only(tasks)


def receive(
    slot: Slot, folder: Path, share: int, callback: StudyCallback, store_row: Callable[[Task, Row], None]
) -> list[list[Task]]:
    """Handle one message of a process. A process that died is replaced, and its run is marked as failed. Where it had
    several, nobody knows which of them was the cause: returns them to be resumed, each by itself."""
    from undrift.study.tasks import failed_row

    try:
        kind, name, content = slot.worker.pipe.recv()
    except (EOFError, OSError):
        code = slot.worker.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        lost, slot.tasks, slot.worker = list(slot.tasks.values()), {}, start(share)
        if len(lost) > 1:
            callback.on_message(f"a process with {len(lost)} runs died ({how}); each of them is resumed by itself")
            return [[task] for task in reversed(lost)]
        for task in lost:
            store_row(task, failed_row(task, folder / task.name, f"the process that ran it died ({how})"))
        return []
    if kind == "round" and name in slot.tasks:
        callback.on_round(slot.tasks[name], *content)
    elif kind == "row" and name in slot.tasks:
        store_row(slot.tasks.pop(name), content)
    return []


def stop_runs(slots: Sequence[Slot]) -> None:
    """Ask every run to stop, and wait until its last round is durable. A second Ctrl-C does not wait."""
    busy = [slot for slot in slots if slot.tasks]
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
    """In a process of the pool: reports the rounds of a run to the parent, at most five times a second."""

    def __init__(self, pipe: Connection, stop: StopSignal, task: Task) -> None:
        self.pipe, self.stop, self.task, self.last = pipe, stop, task.name, 0.0

    def on_round(self, round: int, rounds: int, seconds: float, headline: float | None) -> None:
        if self.stop.received:
            raise KeyboardInterrupt
        if time.monotonic() - self.last > 0.2 or round + 1 == rounds:
            self.last = time.monotonic()
            self.pipe.send(("round", self.task, (round + 1, headline)))


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
    from undrift.study.bundles import carry_out

    stop = StopSignal()
    signal.signal(signal.SIGTERM, stop)
    federations: dict[str, Federation] = {}
    pipe.send(("ready", "", None))
    while not stop.received:
        try:
            data = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        if not data:
            return
        path, objects, keys, packed = cloudpickle.loads(data)
        sys.path[:] = [*sys.path, *[place for place in path if place not in sys.path]]
        tasks, folder = cloudpickle.loads(objects)
        federations = {key: federations.get(key) or unpack(packed[key], MappedBlocks()) for key in packed}
        carry_out(
            tasks,
            folder,
            {task.name: federations[key] for task, key in zip(tasks, keys)},
            lambda task: Reporter(pipe, stop, task),
            lambda task, row: pipe.send(("row", task.name, row)),
            guarded,
        )


def guarded(task: Task, folder: Path, *about: Any) -> Row:
    """`run_task`, where an error that is a bug fails this run, and the others continue."""
    from undrift.study.tasks import failed_row, run_task

    try:
        return run_task(task, folder, *about)
    except Exception as error:
        import traceback

        return failed_row(task, folder / task.name, f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):  # stopped, or the parent is gone
        main()
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or its reader is gone
            stream.flush()
    os._exit(0)  # every run is closed; a normal end takes most of a second, to free what the system frees at once
