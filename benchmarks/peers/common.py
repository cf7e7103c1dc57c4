"""What every peer's script shares: the works, the data that run.py wrote, the clock's report. Needs numpy alone."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LR, MOMENTUM, DECAY = 0.01, 0.9, 5e-4
COHORT = {"a": 10, "b": 10, "c": 100}
BATCH = {"a": 50, "b": 50, "c": 10}
CLIENTS = {"a": 100, "b": 100, "c": 1000}


@dataclass
class Task:
    """One run of one peer: which work, how many rounds (the first `warm` are not counted), and its data."""

    work: str
    variant: str
    rounds: int
    warm: int
    x: np.ndarray  # (n, 784) float32, mapped
    y: np.ndarray  # (n,) int64
    parts: list[np.ndarray]  # rows of each client
    cohorts: np.ndarray  # (rounds, cohort): who trains when
    out: Path

    @property
    def batch(self) -> int:
        return BATCH[self.work]

    def report(self, seconds: list[float], note: str = "", **versions: str) -> None:
        """Seconds of every round, warm ones included; run.py drops those."""
        assert len(seconds) >= self.rounds, f"{len(seconds)} rounds timed, {self.rounds} wanted"
        answer = {"seconds": seconds[self.warm : self.rounds], "note": note, "versions": versions}
        self.out.write_text(json.dumps(answer))


def task() -> Task:
    """From the command line, as run.py writes it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", choices=list("abc"), required=True)
    parser.add_argument("--variant", default="")
    parser.add_argument("--rounds", type=int, required=True, help="all of them, warm ones included")
    parser.add_argument("--warm", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    return open_task(given.data, given.work, given.variant, given.rounds, given.warm, given.out)


def open_task(data: Path, work: str, variant: str, rounds: int, warm: int, out: Path) -> Task:
    deal = np.load(data / f"deal-{CLIENTS[work]}.npz")
    parts = np.split(deal["rows"], deal["ends"][:-1])
    order = [*range(-warm, 0), *range(rounds - warm)]  # warm rounds have cohorts of their own: the same ones count
    cohorts = deal["cohorts"][np.array(order) % len(deal["cohorts"])]
    x, y = (np.load(data / f"{name}.npy", mmap_mode="c") for name in "xy")
    return Task(work, variant, rounds, warm, x, y, parts, cohorts, out)


def torch_network(work: str):
    from torch import nn

    if work == "c":
        return nn.Linear(784, 10)
    if work == "a":
        return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 10))
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10),
    )  # fmt: skip


def torch_rows(x: np.ndarray, work: str):
    """Rows as the network takes them; pictures channels-last, which is the faster layout for convolutions on a CPU."""
    import torch

    rows = torch.from_numpy(np.ascontiguousarray(x))
    return rows.view(-1, 28, 28, 1).permute(0, 3, 1, 2) if work == "b" else rows
