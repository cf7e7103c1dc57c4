"""Start worker processes. This module does not import torch, so that workers import it while their parent does."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from undrift.core import system
from undrift.core.errors import BadRequest

# malloc keeps its pages. Else the large feature maps of convolutions are returned to the system at every step. Vectors of
# more than 128 MB are returned: a worker would keep the copies of every client it has served.
KEEP_PAGES = {
    "MALLOC_MMAP_THRESHOLD_": "134217728",
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_TOP_PAD_": "67108864",
}


@dataclass
class Worker:
    process: subprocess.Popen[bytes]
    pipe: Connection
    chunks: dict[int, list[int]] = field(default_factory=dict)  # key -> positions of the orders it is working on
    order: deque[int] = field(default_factory=deque)  # the keys in the order in which they were sent
    given: int = 0  # samples it got in this exchange


def cores() -> int:
    """How many cores this process may use. A comparison sets UNDRIFT_CORES so that its runs share the cores."""
    if cores_given := os.environ.get("UNDRIFT_CORES", ""):
        return max(1, int(cores_given))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_worker(module: str = "undrift.engine.worker", **environment: str) -> Worker:
    if not system.starts_workers():
        raise BadRequest("worker processes need Linux or macOS; use --engine inline")
    ours, theirs = socket.socketpair()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **KEEP_PAGES, **environment}
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment["PYTHONPATH"] = os.pathsep.join([package, environment.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(theirs.fileno()), str(os.getpid())],
        pass_fds=[theirs.fileno()],
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    return Worker(process, Connection(ours.detach()))


def start_workers(number: int | None) -> list[Worker]:
    """`number` workers, or one per core."""
    return [start_worker() for _ in range(number or cores())]


def stop_workers(workers: list[Worker]) -> None:
    for worker in workers:
        with contextlib.suppress(OSError):
            worker.pipe.send_bytes(b"")
            worker.pipe.close()
    for worker in workers:
        try:
            worker.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
