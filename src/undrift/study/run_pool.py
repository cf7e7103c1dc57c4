"""Whole runs side by side: one process per core, each running one run at a time on one thread.

That keeps every core busy without any exchange between them. When fewer runs are left than would fill the cores evenly,
a few more are started than there are cores and the system shares them out; when there are fewer runs than cores from the
start, each gets its share of workers. Federations lie once in memory that all processes map.

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

MORE = 4  # runs beyond the cores that the system may share out at the end
PATIENCE = 20.0  # seconds for a stopped run to make its last round durable


@dataclass
class Member:
    worker: Worker
    task: Task | None = None


def work(
    tasks: Sequence[Task], folder: Path, federations: Federations, cores: int, callback: StudyCallback,
    keep: Callable[[Task, Row], None],
) -> float:  # fmt: skip
    """All tasks; the wall seconds from the moment when the processes are ready."""
    more = min(cores - 1, MORE, max(0, len(tasks) - cores))
    share = max(1, cores // len(tasks))
    each = f"each on {share} worker{'s' * (share > 1)}" if share > 1 else "each on one thread"
    callback.begin(tasks, f"{min(len(tasks), cores)} runs at a time, {each}", cores)
    members = [Member(start(share)) for _ in range(min(len(tasks), cores + more))]
    post = Post(federations)
    waiting, came = deque(tasks), time.perf_counter()
    try:
        for member in members:
            member.worker.pipe.poll(60.0)  # "ready", or the end of the pipe
        came = time.perf_counter()
        while waiting or any(member.task for member in members):
            busy = sum(member.task is not None for member in members)
            room = cores if busy + len(waiting) > cores + more else cores + more
            for member in members:
                if member.task is None and waiting and busy < room:
                    member.task, busy = waiting.popleft(), busy + 1
                    post.send(member.worker.pipe, member.task, folder)
            for pipe in wait([member.worker.pipe for member in members], 0.5):
                member = next(m for m in members if m.worker.pipe is pipe)
                hear(member, folder, share, callback, keep)
            post.forget([*waiting, *[member.task for member in members if member.task]])
            callback.tick()
    except KeyboardInterrupt:
        stop(members)
        raise
    finally:
        stop_workers([member.worker for member in members])
    return time.perf_counter() - came


def start(share: int) -> Worker:
    return start_worker("undrift.study.run_pool", UNDRIFT_CORES=str(share))


class Post:
    """What a process needs for a run; a federation is laid out once for all of them."""

    def __init__(self, federations: Federations) -> None:
        self.federations, self.laid = federations, dict[str, tuple[Any, bytes]]()

    def send(self, pipe: Connection, task: Task, folder: Path) -> None:
        import cloudpickle

        from undrift.engine.arena import Arena, MappedBlocks, pack_objects

        key = self.federations.key(task.settings)
        if key not in self.laid:
            federation, arena, windows = self.federations.of(task.settings), Arena(), MappedBlocks()
            self.laid[key] = arena, pack_objects(federation, arena)
            federation.move_arrays(lambda tensor: windows.tensor(arena.place(tensor)))
            arena.forget()
        pipe.send((sys.path, cloudpickle.dumps((task, folder)), key, self.laid[key][1]))

    def forget(self, tasks: Sequence[Task]) -> None:
        needed = {self.federations.key(task.settings) for task in tasks}
        for key in set(self.laid) - needed:
            del self.laid[key]
        self.federations.keep(tasks)


def hear(member: Member, folder: Path, share: int, callback: StudyCallback, keep: Callable[[Task, Row], None]) -> None:
    """One message of a process. One that died is replaced, and its run is marked."""
    from undrift.study.tasks import failed

    try:
        kind, content = member.worker.pipe.recv()
    except (EOFError, OSError):
        code = member.worker.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        task, member.task, member.worker = member.task, None, start(share)
        if task is not None:
            keep(task, failed(task, folder / task.name, f"the process that ran it died ({how})"))
        return
    if member.task is not None and kind == "round":
        callback.moved(member.task, *content)
    elif member.task is not None and kind == "row":
        task, member.task = member.task, None
        keep(task, content)


def stop(members: Sequence[Member]) -> None:
    """Every run ends politely: its last round is made durable. A second Ctrl-C does not wait."""
    busy = [member for member in members if member.task is not None]
    for member in busy:
        member.worker.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    for member in busy:
        with contextlib.suppress(Exception):
            member.worker.process.wait(max(0.1, deadline - time.monotonic()))


# ---- the process -----------------------------------------------------------------------------------------------------


class Stop:
    """SIGTERM interrupts whatever is being done. It is remembered, too: an extension module that is being loaded swallows
    what is raised meanwhile (numpy.random does), and the run would go on."""

    asked = False

    def __call__(self, *_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.asked = True
        raise KeyboardInterrupt


class Reporter(RunCallback):
    """Inside a run's process: tells the parent about its rounds, at most five times a second."""

    def __init__(self, pipe: Connection, stop: Stop) -> None:
        self.pipe, self.stop, self.last = pipe, stop, 0.0

    def on_round(self, round: int, rounds: int, seconds: float, accuracy: float | None) -> None:
        if self.stop.asked:
            raise KeyboardInterrupt
        if time.monotonic() - self.last > 0.2 or round + 1 == rounds:
            self.last = time.monotonic()
            self.pipe.send(("round", (round + 1, accuracy)))


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
    from undrift.study.tasks import failed, one

    stop = Stop()
    signal.signal(signal.SIGTERM, stop)
    known, federation = "", None
    pipe.send(("ready", None))
    while not stop.asked:
        try:
            data = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        if not data:
            return
        path, objects, key, laid = cloudpickle.loads(data)
        sys.path[:] = [*sys.path, *[place for place in path if place not in sys.path]]
        task, folder = cloudpickle.loads(objects)
        if key != known:
            known, federation = key, unpack(laid, MappedBlocks())
        assert federation is not None
        try:
            row = one(task, folder, federation, Reporter(pipe, stop))
        except Exception as error:  # a bug: it is this run's, the others go on
            import traceback

            row = failed(task, folder / task.name, f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}")
        pipe.send(("row", row))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):  # stopped, or nobody is there to be told
        main()
