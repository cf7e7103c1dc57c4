"""Two checkouts beside each other: what the rounds of NEW take over those of OLD, in pairs, until that is known to ±2 %.

    python benchmarks/before_after.py OLD NEW [--works a,b,c] [--minutes 15] [--clock wall] [--json FILE]

Each checkout lives in a process of its own with its `src` on the path, one thread on one core (the same for both), the
inline engine. It gets a line, does one call of `ud.run(…, out=False)` and answers with its seconds, while the other process
sleeps on its pipe. A pair is one call of each on the same data with the same seed, one right after the other, first OLD
then NEW and the next time the other way round. The works are those of `undrift bench` (docs/benchmarks.md), dealt by the
same law, with a cohort of 2 in (b): its rounds are nearly all convolution, and shorter pairs lie closer together. Works
that are not finished take turns, and share the time evenly.

In the time of a call: the checks and the set-up of a run, R rounds of FedAvg with their records, evaluation of the global
model on 200 samples and of the last cohort's clients, and the summary; R is chosen once, for OLD, so that a call takes
about a second. Not in it: imports, data, the federation, files, workers and what is sent to them.

The interval of the median is of order statistics and assumes nothing but independent pairs: with k the largest number for
which P(Bin(n, 1/2) < k) ≤ 2.5 %, the k-th smallest and the k-th largest ratio enclose the median of all possible ratios
with a probability of at least 95 % (there is none for fewer than six pairs). A work is finished after an even number of
pairs, at least ten, with an interval narrower than ±2 %. Wall time is disturbed by whatever else runs on the machine;
`--clock cpu` judges by the processor time of the process instead (caches and memory are shared still).
Both are measured, and both are in the JSON file.

Exit code 1 if an interval lies above 1.02. Ctrl-C prints what there is.
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

SLOWER = 1.02  # what counts as slower
NARROW = 0.02  # half the width at which a work is finished
LEAST = 10  # pairs, before an interval is believed to be as narrow as it looks
TESTED = 200  # samples of the test set: evaluation is there, and training is most of the time
COMMON = {"epochs": 1, "lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4, "seed": 0, "evaluate_every": 10**6,
          "engine": "inline", "device": "cpu", "out": False}  # fmt: skip
WORKS: dict[str, dict[str, Any]] = {
    "a": {"clients": 100, "options": {"model": "mlp(200, 100)", "cohort": 10, "batch": 50}},
    "b": {"clients": 100, "options": {"model": "cnn", "cohort": 2, "batch": 50}},
    "c": {"clients": 1000, "options": {"model": "logistic", "cohort": 100, "batch": 10}},
}


# The process of a checkout. Only what is public is used: it has to run on checkouts that are years apart.


def serve(folder: Path) -> None:
    """Lines `work method rounds` on stdin, one JSON object each on stdout; until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a run prints must not be taken for an answer
    if hasattr(os, "sched_setaffinity"):  # the same core for both: the other one may have busier neighbours for a while
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
        gc.collect()  # what the last run left is not this one's
        wall, cpu = time.perf_counter(), time.process_time()
        result = ud.run(method, federations[name], rounds=int(rounds), **COMMON, **WORKS[name]["options"])
        found = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps({**found, "model_sha256": result.summary["model_sha256"]}), file=answers)
        del result


def federation(ud: Any, torch: Any, folder: Path, name: str) -> Any:
    """Of the arrays that both checkouts read. Arguments go by position: their names are no promise."""
    x, y = (torch.from_numpy(np.load(folder / f"{part}.npy")) for part in ("x", "y"))
    if name == "b":
        x = x.view(-1, 28, 28, 1)
    clients = WORKS[name]["clients"]
    rows, ends = (np.load(folder / f"{part}-{clients}.npy") for part in ("rows", "ends"))
    tests = min(TESTED, len(y))
    slices = [np.arange(k, k + 100) % tests for k in range(clients)]
    labels = [str(c) for c in range(10)]
    return ud.Federation("work", (x, y), (x[:tests], y[:tests]), np.split(rows, ends[:-1]), labels, slices)


# The process in the middle: it writes the data once, and asks in turns.


def write_data(folder: Path, names: Sequence[str], samples: int | None) -> str:
    """Fashion-MNIST (UNDRIFT_DATA) or random data of its shape, and who holds what; the data's name."""
    from undrift.bench.bare import fashion
    from undrift.federation.partition import dirichlet

    x, y, name = fashion()
    x, y = x[:samples], y[:samples]
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    for clients in {WORKS[work]["clients"] for work in names}:
        held = dirichlet(0.5)(y, clients, np.random.default_rng(0))
        np.save(folder / f"rows-{clients}.npy", np.concatenate(held))
        np.save(folder / f"ends-{clients}.npy", np.cumsum([len(rows) for rows in held]))
    return name


class Checkout:
    def __init__(self, path: Path, folder: Path) -> None:
        source = (path / "src").resolve()
        if not (source / "undrift").is_dir():
            sys.exit(f"{path} is no checkout: it has no src/undrift")
        from undrift.bench.bare import KEEP_PAGES  # a malloc that gives pages back makes (b) slower and unsteady

        alone = {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **KEEP_PAGES}
        command = [sys.executable, "-P", __file__, "--serve", str(folder)]
        self.path, self.rounds = path, 0
        # A session of its own: Ctrl-C is for the one in the middle, which then ends the others.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                        env=os.environ | alone, start_new_session=True)  # fmt: skip
        used = Path(self.answer()["source"])
        if not used.is_relative_to(source):
            self.close()
            sys.exit(f"the process of {path} has imported {used}")

    def call(self, work: str, method: str, rounds: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        print(work, method, rounds, file=self.process.stdin)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the process of {self.path} ended; what it said is above")
        return json.loads(line)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # the line that it did not live to read
                pipe.close()


class Pairs:
    """What was measured of one work, and what it says."""

    def __init__(self, work: str, clock: str) -> None:
        self.work, self.clock = work, clock
        self.rounds, self.seconds = 0, 0.0  # of a call; spent on this work
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
        """One pair; before the first, how many rounds a call has, and one call of each for nothing."""
        began = time.monotonic()
        if not self.rounds:
            old.call(self.work, method, 1)
            self.rounds = max(1, round(2 * seconds / old.call(self.work, method, 2)["cpu"]))
            new.call(self.work, method, self.rounds)
        order = ((old, self.old), (new, self.new))
        found = [(kept, checkout.call(self.work, method, self.rounds))
                 for checkout, kept in (order if len(self.new) % 2 == 0 else order[::-1])]  # fmt: skip
        for kept, call in found:  # both or none, should Ctrl-C come between them
            kept.append(call)
        self.seconds += time.monotonic() - began

    def report(self) -> dict[str, Any]:
        whole = {clock: summary(self.ratios(clock)) for clock in ("wall", "cpu")}
        return {
            "work": self.work, "pairs": len(self.new), "rounds": self.rounds, "same_results": self.same,
            "verdict": verdict(interval(self.ratios())), **whole,
            "seconds": [{c: (old[c], new[c]) for c in ("wall", "cpu")} for old, new in zip(self.old, self.new)],
        }  # fmt: skip


def interval(ratios: Sequence[float]) -> tuple[float, float] | None:
    """Of the median, at 95 % or more."""
    place = rank(len(ratios))
    ordered = sorted(ratios)
    return (ordered[place - 1], ordered[-place]) if place else None


def rank(count: int) -> int:
    """The largest k with P(Bin(count, 1/2) < k) ≤ 2.5 %; in whole numbers, so exactly."""
    below, k = 0, 0
    while 40 * (below + math.comb(count, k)) <= 2**count:
        below += math.comb(count, k)
        k += 1
    return k


def summary(ratios: Sequence[float]) -> dict[str, Any]:
    return {"ratio": statistics.median(ratios) if ratios else None, "interval": interval(ratios)}


def verdict(found: tuple[float, float] | None) -> str:
    if found is None:
        return "too few pairs"
    if found[0] > SLOWER:
        return f"above {SLOWER}"
    return f"below {SLOWER}" if found[1] < SLOWER else f"includes {SLOWER}"


def words(found: dict[str, Any]) -> str:
    if found["ratio"] is None:
        return "—"
    between = found["interval"]
    return f"{found['ratio']:.3f} " + (f"[{between[0]:.3f}, {between[1]:.3f}]" if between else "[—]")


def table(reports: Sequence[dict[str, Any]], clock: str) -> str:
    other = "cpu" if clock == "wall" else "wall"
    rows = [["work", "rounds", "pairs", f"NEW/OLD, {clock}", "", f"{other}", "results"]]
    rows += [[r["work"], str(r["rounds"]), str(r["pairs"]), words(r[clock]), r["verdict"], words(r[other]),
              "same" if r["same_results"] else "DIFFER"] for r in reports]  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def main(words_given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("old", type=Path, help="a checkout")
    parser.add_argument("new", type=Path, help="another one")
    parser.add_argument("--works", default="a,b,c", help="which, joined by commas")
    parser.add_argument("--minutes", type=float, default=15.0, help="at most, for all works together")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="what decides")
    parser.add_argument("--method", default="fedavg", help="a published name")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a call, about")
    parser.add_argument("--samples", type=int, help="the first so many of the data, instead of all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every pair's seconds there")
    given = parser.parse_args(words_given)
    names = given.works.split(",")
    if bad := [name for name in names if name not in WORKS]:
        parser.error(f"there is no work {bad[0]}; there are {', '.join(WORKS)}")
    works = [Pairs(name, given.clock) for name in names]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as open_ones:
        try:
            data = write_data(Path(folder), names, given.samples)
            old, new = (
                open_ones.enter_context(contextlib.closing(Checkout(path, Path(folder))))
                for path in (given.old, given.new)
            )
            end = time.monotonic() + 60 * given.minutes
            while time.monotonic() < end and (left := [work for work in works if not work.finished]):
                work = min(left, key=lambda work: work.seconds)
                work.measure(old, new, given.method, given.seconds)
                a, b = work.old[-1][given.clock], work.new[-1][given.clock]
                print(f"({work.work}) pair {len(work.new)}: old {a:.3f} s, new {b:.3f} s, {b / a:.3f}; all "
                      f"{words(summary(work.ratios()))}", file=sys.stderr, flush=True)  # fmt: skip
        except KeyboardInterrupt:
            print("stopped; what there is:", file=sys.stderr)
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
