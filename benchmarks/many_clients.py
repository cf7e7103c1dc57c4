"""A hundred thousand clients: memory of all processes, time of a round relative to a thousand clients, waits for the store.

    UNDRIFT_DATA=FOLDER python benchmarks/many_clients.py [--minutes 5]

scaffold on the MLP, `resample(600)` over Fashion-MNIST (lazy), 100 clients per round, 10 epochs, the processes engine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

from undrift.core.determinism import one_thread
from undrift.engine.processes import Processes
from undrift.engine.spawn import cores, start_workers
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.federation.dealing import federate
from undrift.store.run_store import RunStore


def proportional_set_size() -> float:
    """GB of this process and its children; shared memory counts once."""
    me = os.getpid()
    children = Path(f"/proc/{me}/task/{me}/children").read_text().split()
    total = 0
    for pid in (str(me), *children):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1e6


class Population:
    """A federation with this many clients, stepped round by round."""

    def __init__(self, clients: int, folder: str) -> None:
        federation = federate("fashion-mnist", "resample(600)", clients)
        options = {
            "method": "scaffold",
            "model": "mlp",
            "epochs": 10,
            "cohort": 100,
            "rounds": 10**6,
            "out": False,
            "evaluate_every": 10**6,
        }
        self.setup = prepare(from_keywords(options), federation)
        self.store = RunStore(Path(folder) / str(clients))
        self.engine = Processes(start_workers(cores())).open(self.setup.runtime, self.store.states)
        self.loop = self.setup.loop(self.engine, self.store)
        self.server_state = self.loop.begin()
        self.engine.ready()
        self.seconds: list[float] = []

    def round(self) -> float:
        began = time.perf_counter()
        with one_thread():
            result = self.loop.one_round(self.server_state)
            found = result.metrics, result.notes, result.events
            self.store.record.commit_round(self.server_state.round, 0.0, 0.0, result.cohort, *found)
            self.server_state = result.state
            if self.store.due(result.state):
                self.store.checkpoint(result.state)
        self.seconds.append(time.perf_counter() - began)
        return self.seconds[-1]

    def close(self) -> None:
        self.engine.close()
        self.store.close()


def disk_speed(folder: str) -> float:
    """MB/s of a synced write."""
    began = time.perf_counter()
    with open(Path(folder) / "speed", "wb") as file:
        for _ in range(64):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    return 64 / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=5.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        speed = disk_speed(folder)
        many = Population(100_000, folder)
        many.round()
        peak, stop = [proportional_set_size()], threading.Event()

        def sample_memory() -> None:
            while not stop.wait(2.0):
                peak.append(proportional_set_size())

        sampler = threading.Thread(target=sample_memory, daemon=True)
        sampler.start()
        waited, began = many.store.states.waited, time.monotonic()
        checkpoints = set()
        while time.monotonic() - began < 60 * given.minutes or len(checkpoints) < 10:
            many.round()
            checkpoints |= {row[0] for row in many.store.record.all("SELECT round FROM files")}
        share = (many.store.states.waited - waited) / (time.monotonic() - began)
        stop.set()
        sampler.join()
        print(
            f"100,000 clients: {len(many.seconds)} rounds, median {statistics.median(many.seconds):.2f} s; "
            f"{len(checkpoints)} checkpoints; peak proportional set size {max(peak):.2f} GB; "
            f"waiting for the store {100 * share:.2f} % of the time (disk: {speed:.0f} MB/s synced)",
            flush=True,
        )
        few = Population(1_000, folder)
        few.round()
        pairs = [(few.round(), many.round()) for _ in range(7)]
        print(
            f"a round of 100,000 over one of 1,000 clients, in pairs: {statistics.median(b / a for a, b in pairs):.3f}"
        )
        few.close()
        many.close()


if __name__ == "__main__":
    main()
