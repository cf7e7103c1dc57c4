"""CPU time of a method on a worker, relative to FedAvg, on workload (b) of `undrift bench`, beside the counted passes.

    UNDRIFT_DATA=FOLDER python benchmarks/costs.py [METHOD …] [--pairs 6] [--results docs/results/costs.jsonl]

A client of 250 samples repeats its second round, in turn with FedAvg's, in one process on one thread like a worker. Four
small clients complete the cohort. Each ratio is to the mean of the FedAvg rounds before and after; the median ratio is
printed, and `fedavg` relative to itself shows the noise. A method without a hook at the client does exactly FedAvg's work
on the worker, so it is not measured. Server time is one aggregation of five models. Exits with 1 if a method is above its
limit. `--results` replaces the lines of the measured methods in a file, which docs/results/costs.md is rendered from.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from undrift.bench.bare import Work
from undrift.bench.costs import Costs, count
from undrift.bench.measure import MODELS, NoEvaluation, all_works
from undrift.core.errors import BadRequest
from undrift.engine.inline import Inline
from undrift.engine.spawn import KEEP_PAGES
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.experiment.tables import text_table
from undrift.federation.federation import Federation
from undrift.methods.published import PUBLISHED
from undrift.papers.results import machine
from undrift.round.client import serve
from undrift.store.run_store import RunStore

SAME = {"fliu10": "fliu50", "fliu25": "fliu50", "fliu75": "fliu50", "fliu90": "fliu50", "clt": "local"}
LIMITS = {"sampling.flood": 1.03, "feddecorr": 1.05, "fedrs": 1.05, "fedlc": 1.05, "feddisco": 1.05}
CAREFUL = 4  # times as many pairs for a method with a limit
EPOCHS = {"fedrep": 2}  # trains head and body in turn, so it needs two; so does the FedAvg it is compared with
SAMPLES, ROUNDS = 250, 2  # in the second round schedules are on and shelves are filled


class SecondRound:
    """A method at its second round, with the order of one client."""

    def __init__(self, work: Work, name: str, epochs: int = 1) -> None:
        options = {"method": name, "model": MODELS[work.name], "rounds": ROUNDS, "epochs": epochs, "batch": work.batch,
                   "lr": work.lr, "momentum": work.momentum, "weight_decay": work.decay, "cohort": 1.0,
                   "out": False}  # fmt: skip
        setup = prepare(from_keywords(options), federation(work))
        self.runtime, self.plain = setup.runtime, not setup.method.at_client and setup.plan.private is None
        store = RunStore(None)
        loop = setup.loop(Inline(self.runtime, store.states), store)
        loop.evaluator = NoEvaluation()
        server_state = loop.begin()
        for _ in range(ROUNDS - 1):
            loop.clock.spent.clear()
            server_state = loop.one_round(server_state).state
        self.server = loop.clock.spent["aggregation"]
        order, *_ = loop.orders(loop.open_round(server_state), range(setup.plan.clients))
        self.order = loop.engine.with_state(order)
        self.seconds()  # warm up

    def seconds(self) -> float:
        began = time.process_time()
        reply = serve(self.runtime, self.order)
        took = time.process_time() - began
        assert reply.failure is None, reply.failure
        return took


def federation(work: Work) -> Federation:
    x, y = torch.from_numpy(work.x).view(-1, 28, 28, 1), torch.from_numpy(work.y)
    rows = np.concatenate(work.parts)
    parts = np.split(rows[: SAMPLES + 200], [SAMPLES, SAMPLES + 50, SAMPLES + 100, SAMPLES + 150])
    return Federation("fashion-mnist", (x, y), (x[:100], y[:100]), parts, [str(c) for c in range(10)],
                      [np.arange(100)] * len(parts), proxy=rows[-200:])  # fmt: skip


def ratios(plain: SecondRound, other: SecondRound, pairs: int) -> list[float]:
    found, before = [], plain.seconds()
    for _ in range(pairs):
        mine, after = other.seconds(), plain.seconds()
        found.append(2 * mine / (before + after))
        before = after
    return found


def passes(costs: Costs, epochs: int) -> float:
    return costs.passes + epochs * costs.passes_per_epoch


def table(lines: list[dict[str, Any]]) -> list[list[str]]:
    """One row per method."""
    rows = [["method", "CPU time", "quartiles", "pairs", "limit", "passes", "server s"]]
    for line in lines:
        if "as" in line or "refused" in line:
            rows.append([line["method"], f"as {line['as']}" if "as" in line else "refused", "", "", "", "", ""])
            continue
        low, high = line.get("quartiles", (0, 0))
        work = ["1", "the same work", ""] if line.get("same_work") else [
            f"{line['cpu_ratio']:.3f}", f"{low:.3f}–{high:.3f}", str(line["pairs"]),
        ]  # fmt: skip
        limit = f"{line['limit']:.2f}" if "limit" in line else ""
        rows.append([line["method"], *work, limit, f"{line['passes']:g}", f"{line['server_seconds']:.2f}"])
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", help="methods to measure [all]")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--results", type=Path, help="keep the numbers in this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    works, data = all_works()
    work = works["b"]
    plain = {epochs: SecondRound(work, "fedavg", epochs) for epochs in (1, 2)}
    lines: list[dict[str, Any]] = []
    above = []
    for name in given.methods or [*PUBLISHED, "sampling.flood", "weighting.flood"]:
        if name in SAME and not given.methods:
            lines.append({"method": name, "as": SAME[name]})
            continue
        epochs, limit = EPOCHS.get(name, 1), LIMITS.get(name)
        try:
            other = SecondRound(work, name, epochs)
        except BadRequest as refused:
            print(f"{name}: {refused}", file=sys.stderr)
            lines.append({"method": name, "refused": str(refused)})
            continue
        if other.plain and name != "fedavg":
            lines.append({"method": name, "cpu_ratio": 1.0, "same_work": True, "passes": 0.0,
                          "server_seconds": round(other.server, 2)})  # fmt: skip
            continue
        found = ratios(plain[epochs], other, given.pairs * (CAREFUL if limit else 1))
        low, middle, high = statistics.quantiles(found, n=4)
        above += [name] if limit and middle > limit else []
        lines.append({"method": name, "cpu_ratio": round(middle, 3), "quartiles": [round(low, 3), round(high, 3)],
                      "pairs": len(found), **({"limit": limit} if limit else {}), "passes": passes(count(name), epochs),
                      "server_seconds": round(other.server, 2)})  # fmt: skip
        print(*table(lines[-1:])[1], file=sys.stderr, flush=True)
        del other
        gc.collect()
    usual = plain[1].seconds()
    print(f"one client of {SAMPLES} samples ({data}), CNN, batch {work.batch}, one epoch (fedrep two); FedAvg "
          f"{usual:.2f} s of CPU time\n\n{text_table(table(lines))}")  # fmt: skip
    if given.results:
        keep(given.results, lines, usual)
    for name in above:
        print(f"{name} is above its limit", file=sys.stderr)
    return 1 if above else 0


def keep(file: Path, lines: list[dict[str, Any]], usual: float) -> None:
    """Replace the lines of these methods in a results file, with machine and date."""
    about = {"fedavg_seconds": round(usual, 2), "machine": machine(), "date": time.strftime("%Y-%m-%d")}
    new = {line["method"]: {**line, **about} for line in lines}
    before = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    kept = [new.pop(line["method"], line) for line in before] + list(new.values())
    file.write_text("".join(json.dumps(line) + "\n" for line in kept))


if __name__ == "__main__":
    if "MALLOC_TOP_PAD_" not in os.environ:  # the malloc settings of a worker, which are read when a process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_PAGES, "OMP_NUM_THREADS": "1"})
    sys.exit(main())
