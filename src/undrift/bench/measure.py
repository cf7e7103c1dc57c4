"""Undrift relative to the bare loop: alternating rounds on the same cohorts, because ratios of neighbours are less noisy."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from undrift.bench.bare import Bare, Work, fashion, works
from undrift.core.determinism import one_thread
from undrift.core.streams import numpy_stream
from undrift.data.decode import digits_set
from undrift.engine.processes import Processes
from undrift.engine.spawn import cores, start_workers
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.federation.federation import Federation
from undrift.federation.partition import dirichlet
from undrift.round.engine import Engine
from undrift.round.loop import Evaluator
from undrift.store.run_store import RunStore

MODELS = {"a": "mlp(200, 100)", "b": "cnn", "c": "logistic", "d": "mlp(100)"}
PAIRS = {"a": 11, "b": 7, "c": 11, "d": 11}


def all_works() -> tuple[dict[str, Work], str]:
    """(the workloads by name, the name of their data). (d) is the demo's: small clients of the built-in digits."""
    x, y, name = fashion()
    shards = [dirichlet(0.5)(y, clients, numpy_stream(0, "bench", clients)) for clients in (100, 1000)]
    digits = digits_set()
    small = np.ascontiguousarray(digits["x_train"].reshape(-1, 64), dtype=np.float32) / 255
    labels = digits["y_train"].astype(np.int64)
    parts = dirichlet(0.5)(labels, 20, numpy_stream(0, "bench", 20))
    return {**works(x, y, *shards), "d": Work("d", "small", 10, 32, small, labels, parts, epochs=5)}, name


class NoEvaluation:
    """An evaluator that never evaluates."""

    def is_due(self, round: int) -> bool:
        return False

    def population(self, cohort: Sequence[int]) -> list[int]:
        return []

    def evaluate(self, *_: Any) -> list[Any]:
        return []


class UndriftLoop:
    """A workload in Undrift, stepped round by round: processes engine, store on, evaluation on or off. `method` measures
    another method, `engine` (called with the runtime and the state store) another engine."""

    def __init__(self, work: Work, workers: int, method: Any = "fedavg", folder: Path | None = None,
                 engine: Callable[[Any, Any], Engine] | None = None) -> None:  # fmt: skip
        x = torch.from_numpy(work.x)
        rows = x.view(-1, 28, 28, 1) if work.model == "cnn" else x
        y = torch.from_numpy(work.y)
        labels = [str(c) for c in range(10)]
        federation = Federation("fashion-mnist", (rows, y), (rows[:10000], y[:10000]), work.parts, labels,
                                [torch.arange(k, k + 100).numpy() for k in range(len(work.parts))])  # fmt: skip
        options = from_keywords({
            "method": method, "model": MODELS[work.name], "rounds": 10**6, "epochs": work.epochs, "batch": work.batch,
            "lr": work.lr, "momentum": work.momentum, "weight_decay": work.decay, "cohort": work.cohort, "out": False,
        })  # fmt: skip
        self.setup = prepare(options, federation)
        self.store = RunStore(folder)
        start = engine or Processes(start_workers(workers)).open
        self.engine = start(self.setup.runtime, self.store.states)
        self.loop = self.setup.loop(self.engine, self.store)
        self.evaluators: dict[bool, Evaluator] = {False: NoEvaluation(), True: self.loop.evaluator}
        self.server_state = self.loop.begin()
        self.engine.ready()

    def cohort(self) -> list[int]:
        stream = numpy_stream(self.setup.plan.seed, "cohort", self.server_state.round)
        return self.setup.selection.choose(stream, self.setup.plan.clients)

    def round(self, evaluated: bool = False) -> float:
        """One round with its commit, and its checkpoint when one is due; returns the seconds it took."""
        self.loop.evaluator = self.evaluators[evaluated]
        with one_thread():
            began = time.perf_counter()
            done = self.loop.one_round(self.server_state)
            self.store.record.commit_round(
                self.server_state.round, 0.0, 0.0, done.cohort, done.metrics, done.notes, done.events
            )
            self.server_state = done.state
            if self.store.due(done.state):
                self.store.checkpoint(done.state)
            self.loop.clock.lap("store")
            return time.perf_counter() - began

    def close(self) -> None:
        self.engine.close()
        self.store.close()


def measure(
    work: Work, workers: int | None = None, seconds: float = 30.0, pairs: int | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:  # fmt: skip
    """Measure rounds of the bare loop, ours, and ours with evaluation in turn, for at least `seconds` and `pairs` pairs."""
    workers = workers or cores()
    with tempfile.TemporaryDirectory() as folder:
        bare, ours = Bare(work, workers), UndriftLoop(work, workers, folder=Path(folder) / "run")
        try:
            for _ in range(2):
                bare.round(ours.cohort())
                ours.round()
            rows: list[tuple[float, float, float]] = []
            began = time.monotonic()
            while len(rows) < (pairs or PAIRS[work.name]) or time.monotonic() - began < seconds:
                plain = bare.round(ours.cohort())
                mine = ours.round()
                again = bare.round(ours.cohort())
                evaluated = ours.round(evaluated=True)
                rows.append((plain, mine / plain, evaluated / again))
                say(f"({work.name}) pair {len(rows)}: bare {plain:.3f} s, ours {mine / plain:.3f}×")
        finally:
            bare.close()
            ours.close()
    ratios = [row[1] for row in rows]
    quarter = statistics.quantiles(ratios, n=4)
    return {
        "name": work.name, "bare": statistics.median(row[0] for row in rows),
        "seconds": statistics.median(row[0] * row[1] for row in rows), "ratio": statistics.median(ratios),
        "ratio_evaluated": statistics.median(row[2] for row in rows), "spread": quarter[2] - quarter[0],
        "pairs": len(rows), "workers": workers,
    }  # fmt: skip


def profile(work: Work, workers: int | None = None, rounds: int = 10) -> dict[str, Any]:
    """How clients train, and shares of a round's wall time. The clients' compute time is divided by the number of workers; the rest of the
    engine's time is copying, sending and waiting for the last client."""
    workers = workers or cores()
    with tempfile.TemporaryDirectory() as folder:
        ours = UndriftLoop(work, workers, folder=Path(folder) / "run")
        try:
            ours.round()
            ours.loop.clock.spent.clear()
            ours.loop.clock.lap("start")
            ours.loop.clock.spent.clear()
            wall = sum(ours.round(evaluated=True) for _ in range(rounds))
            spent = dict(ours.loop.clock.spent)
        finally:
            ours.close()
    training, scoring, evaluating = (spent[kind] / workers for kind in ("training", "scoring", "judging"))
    shares = {
        "training": training, "scoring": scoring, "evaluation": spent["evaluation"] + evaluating,
        "copying and waiting": spent["clients"] - training - scoring - evaluating, "orders": spent["orders"],
        "aggregation": spent["aggregation"], "store": spent["store"],
    }  # fmt: skip
    return {
        "clients": ours.setup.plan.lockstep_why,
        "seconds": wall / rounds,
        **{name: value / wall for name, value in shares.items()},
    }
