"""Compare the speed of two checkouts: the time of NEW's rounds over OLD's, in pairs, until it is known to ±2 %.

    python benchmarks/before_after.py OLD NEW [--works a,b,c] [--minutes 15] [--clock wall] [--json FILE]

Each checkout has its own process with its `src` on the path: one thread on one core (the same core for both), the inline
engine. The process reads a line, calls `ud.run(…, out=False)` once and answers with the seconds, while the other process
sleeps on its pipe. A pair is one call of each on the same data with the same seed, one right after the other, first OLD
then NEW, in the next pair the other way round. The workloads are those of `undrift bench` (docs/benchmarks.md), with the
same partition, and with a cohort of 2 in (b): its rounds are nearly all convolution, and shorter pairs vary less.
Unfinished workloads take turns and share the time evenly.

A call includes the checks and the setup of a run, R rounds of FedAvg with their records, evaluation of the global model
on 200 samples and of the last cohort's clients, and the summary. R is chosen once, for OLD, so that a call takes about a
second. It excludes imports, data, the federation, files, workers and what is sent to them.

The interval of the median uses order statistics and assumes only that pairs are independent: with k the largest number
for which P(Bin(n, 1/2) < k) ≤ 2.5 %, the k-th smallest and the k-th largest ratio enclose the true median with a
probability of at least 95 % (fewer than six pairs have no interval). A workload is finished after an even number of
pairs, at least ten, with an interval narrower than ±2 %. Other work on the machine disturbs the wall time; `--clock cpu`
decides by the processor time of the process instead (caches and memory are still shared).
Both are measured, and both are in the JSON file.

Exits with 1 if an interval lies above 1.02. Ctrl-C prints the pairs measured so far.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

SLOWER = 1.02  # a ratio above this is slower
NARROW = 0.02  # half the width of the interval at which a workload is finished
LEAST = 10  # pairs: fewer may look narrow by chance
TESTED = 200  # test samples: evaluation takes part, but training is most of the time
COMMON = {"epochs": 1, "lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4, "seed": 0, "evaluate_every": 10**6,
          "engine": "inline", "device": "cpu", "out": False}  # fmt: skip
WORKS: dict[str, dict[str, Any]] = {
    "a": {"clients": 100, "options": {"model": "mlp(200, 100)", "cohort": 10, "batch": 50}},
    "b": {"clients": 100, "options": {"model": "cnn", "cohort": 2, "batch": 50}},
    "c": {"clients": 1000, "options": {"model": "logistic", "cohort": 100, "batch": 10}},
}


# The process of a checkout. It uses the public API only, because it must run on old and new checkouts.


def serve(folder: Path) -> None:
    """Read lines `work method rounds` from stdin, answer each with one JSON object on stdout, until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a run prints must not be read as an answer
    if hasattr(os, "sched_setaffinity"):  # the same core for both: another one may be busier for a while
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import torch

    import undrift as ud

    torch.set_num_threads(1)
    print(json.dumps({"source": str(Path(ud.__file__).resolve())}), file=answers)
    federations: dict[str, Any] = {}
    for line in sys.stdin:
        name, method, rounds = line.split()
        if name not in federations:
            federations[name] = federation(ud, torch, folder, name)
        gc.collect()  # do not charge this call for the last run's garbage
        wall, cpu = time.perf_counter(), time.process_time()
        result = ud.run(method, federations[name], rounds=int(rounds), **COMMON, **WORKS[name]["options"])
        found = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps({**found, "model_sha256": result.summary["model_sha256"]}), file=answers)
        del result


def federation(ud: Any, torch: Any, folder: Path, name: str) -> Any:
    """The federation of the arrays that both checkouts read. Arguments are positional: their names may change."""
    x, y = (torch.from_numpy(np.load(folder / f"{part}.npy")) for part in ("x", "y"))
    if name == "b":
        x = x.view(-1, 28, 28, 1)
    clients = WORKS[name]["clients"]
    rows, ends = (np.load(folder / f"{part}-{clients}.npy") for part in ("rows", "ends"))
    tests = min(TESTED, len(y))
    slices = [np.arange(k, k + 100) % tests for k in range(clients)]
    labels = [str(c) for c in range(10)]
    return ud.Federation("work", (x, y), (x[:tests], y[:tests]), np.split(rows, ends[:-1]), labels, slices)


# The main process: it writes the data once, and calls the two checkouts in turn.


def write_data(folder: Path, names: Sequence[str], samples: int | None) -> str:
    """Write Fashion-MNIST (UNDRIFT_DATA) or random data of its shape, and the clients' rows; returns the data's name."""
    from undrift.bench.bare import fashion
    from undrift.federation.partition import dirichlet

    x, y, name = fashion()
    x, y = x[:samples], y[:samples]
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    for clients in {WORKS[work]["clients"] for work in names}:
        shards = dirichlet(0.5)(y, clients, np.random.default_rng(0))
        np.save(folder / f"rows-{clients}.npy", np.concatenate(shards))
        np.save(folder / f"ends-{clients}.npy", np.cumsum([len(rows) for rows in shards]))
    return name


class Checkout:
    """The process of one checkout."""

    def __init__(self, path: Path, folder: Path) -> None:
        source = (path / "src").resolve()
        if not (source / "undrift").is_dir():
            sys.exit(f"{path} is not a checkout: it has no src/undrift")
        from undrift.bench.bare import KEEP_PAGES  # a malloc that returns pages makes (b) slower and noisier

        environment = {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **KEEP_PAGES}
        command = [sys.executable, "-P", __file__, "--serve", str(folder)]
        self.path, self.rounds = path, 0
        # Its own session: Ctrl-C reaches only the main process, which then ends the others.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                        env=os.environ | environment, start_new_session=True)  # fmt: skip
        used = Path(self.answer()["source"])
        if not used.is_relative_to(source):
            self.close()
            sys.exit(f"the process of {path} imported {used} instead")

    def call(self, work: str, method: str, rounds: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        print(work, method, rounds, file=self.process.stdin)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the process of {self.path} ended; its output is above")
        return json.loads(line)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # a line that it did not read
                pipe.close()


class Pairs:
    """The measured pairs of one workload, and what they say."""

    def __init__(self, work: str, clock: str) -> None:
        self.work, self.clock = work, clock
        self.rounds, self.seconds = 0, 0.0  # rounds per call; seconds spent on this workload
        self.old: list[dict[str, Any]] = []
        self.new: list[dict[str, Any]] = []

    def ratios(self, clock: str | None = None) -> list[float]:
        clock = clock or self.clock
        return [new[clock] / old[clock] for old, new in zip(self.old, self.new)]

    @property
    def finished(self) -> bool:
        found = interval(self.ratios())
        count = len(self.new)
        return found is not None and count >= LEAST and count % 2 == 0 and (found[1] - found[0]) / 2 < NARROW

    @property
    def same(self) -> bool:
        return len({call["model_sha256"] for call in (*self.old, *self.new)}) < 2

    def measure(self, old: Checkout, new: Checkout, method: str, seconds: float) -> None:
        """Measure one pair. Before the first, choose the rounds of a call and warm up both checkouts."""
        began = time.monotonic()
        if not self.rounds:
            old.call(self.work, method, 1)
            self.rounds = max(1, round(2 * seconds / old.call(self.work, method, 2)["cpu"]))
            new.call(self.work, method, self.rounds)
        order = ((old, self.old), (new, self.new))
        found = [(calls, checkout.call(self.work, method, self.rounds))
                 for checkout, calls in (order if len(self.new) % 2 == 0 else order[::-1])]  # fmt: skip
        for calls, call in found:  # both or none, if Ctrl-C comes between them
            calls.append(call)
        self.seconds += time.monotonic() - began

    def report(self) -> dict[str, Any]:
        whole = {clock: summary(self.ratios(clock)) for clock in ("wall", "cpu")}
        return {
            "work": self.work, "pairs": len(self.new), "rounds": self.rounds, "same_results": self.same,
            "verdict": conclusion(interval(self.ratios())), **whole,
            "seconds": [{c: (old[c], new[c]) for c in ("wall", "cpu")} for old, new in zip(self.old, self.new)],
        }  # fmt: skip


def interval(ratios: Sequence[float]) -> tuple[float, float] | None:
    """The confidence interval of the median, at 95 % or more."""
    place = rank(len(ratios))
    ordered = sorted(ratios)
    return (ordered[place - 1], ordered[-place]) if place else None


def rank(count: int) -> int:
    """The largest k with P(Bin(count, 1/2) < k) ≤ 2.5 %, exact in whole numbers."""
    below, k = 0, 0
    while 40 * (below + math.comb(count, k)) <= 2**count:
        below += math.comb(count, k)
        k += 1
    return k


def summary(ratios: Sequence[float]) -> dict[str, Any]:
    return {"ratio": statistics.median(ratios) if ratios else None, "interval": interval(ratios)}


def conclusion(found: tuple[float, float] | None) -> str:
    if found is None:
        return "too few pairs"
    if found[0] > SLOWER:
        return f"above {SLOWER}"
    return f"below {SLOWER}" if found[1] < SLOWER else f"includes {SLOWER}"


def ratio_text(found: dict[str, Any]) -> str:
    if found["ratio"] is None:
        return "—"
    between = found["interval"]
    return f"{found['ratio']:.3f} " + (f"[{between[0]:.3f}, {between[1]:.3f}]" if between else "[—]")


def table(reports: Sequence[dict[str, Any]], clock: str) -> str:
    other = "cpu" if clock == "wall" else "wall"
    rows = [["work", "rounds", "pairs", f"NEW/OLD, {clock}", "", f"{other}", "results"]]
    rows += [[r["work"], str(r["rounds"]), str(r["pairs"]), ratio_text(r[clock]), r["verdict"], ratio_text(r[other]),
              "same" if r["same_results"] else "DIFFER"] for r in reports]  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("old", type=Path, help="folder of the old checkout")
    parser.add_argument("new", type=Path, help="folder of the new checkout")
    parser.add_argument("--works", default="a,b,c", help="workloads, joined by commas")
    parser.add_argument("--minutes", type=float, default=15.0, help="at most, for all workloads together")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="the clock that decides")
    parser.add_argument("--method", default="fedavg", help="a published name")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a call, about")
    parser.add_argument("--samples", type=int, help="use only the first N samples of the data")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the seconds of every pair to FILE")
    given = parser.parse_args(arguments)
    names = given.works.split(",")
    if bad := [name for name in names if name not in WORKS]:
        parser.error(f"there is no workload {bad[0]}; known: {', '.join(WORKS)}")
    works = [Pairs(name, given.clock) for name in names]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        try:
            data = write_data(Path(folder), names, given.samples)
            old, new = (
                stack.enter_context(contextlib.closing(Checkout(path, Path(folder)))) for path in (given.old, given.new)
            )
            end = time.monotonic() + 60 * given.minutes
            while time.monotonic() < end and (left := [work for work in works if not work.finished]):
                work = min(left, key=lambda work: work.seconds)
                work.measure(old, new, given.method, given.seconds)
                a, b = work.old[-1][given.clock], work.new[-1][given.clock]
                print(f"({work.work}) pair {len(work.new)}: old {a:.3f} s, new {b:.3f} s, {b / a:.3f}; all "
                      f"{ratio_text(summary(work.ratios()))}", file=sys.stderr, flush=True)  # fmt: skip
        except KeyboardInterrupt:
            print("stopped; measured so far:", file=sys.stderr)
            data = "unfinished"
    reports = [work.report() for work in works]
    print(table(reports, given.clock))
    if given.json:
        about = {"clock": given.clock, "data": data, "method": given.method, "date": time.strftime("%Y-%m-%d")}
        given.json.write_text(json.dumps({**about, "works": reports}, indent=1) + "\n")
    return int(any(report["verdict"] == f"above {SLOWER}" for report in reports))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]))
    else:
        sys.exit(main())
