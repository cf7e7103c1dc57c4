"""What every peer's script shares: the works, the data that run.py wrote, the gate. Needs numpy alone."""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LR, MOMENTUM, DECAY = 0.01, 0.9, 5e-4
COHORT = {"a": 10, "b": 10, "c": 100}
BATCH = {"a": 50, "b": 50, "c": 10}
CLIENTS = {"a": 100, "b": 100, "c": 1000}


@dataclass
class Task:
    """One peer's run of one work: its data, and the gate through which every round passes."""

    work: str
    variant: str
    rounds: int
    x: np.ndarray  # (n, 784) float32, mapped
    y: np.ndarray  # (n,) int64
    parts: list[np.ndarray]  # rows of each client
    cohorts: np.ndarray  # (rounds, cohort): who trains when
    gate_at: str = ""
    line: socket.socket | None = None

    @property
    def batch(self) -> int:
        return BATCH[self.work]

    def gate(self, note: str = "", **versions: str) -> None:
        """Called before every round and after the last: says "ready" and waits for the word. run.py's clock runs from
        its word to the next "ready", so that peers take turns round by round and everything in a round is in it."""
        if self.line is None:
            self.line = socket.socket(socket.AF_UNIX)
            self.line.connect(self.gate_at)
            self.line.sendall(json.dumps({"note": note, "versions": versions}).encode() + b"\n")
        self.line.sendall(b"r")
        if not self.line.recv(1):
            raise SystemExit("run.py is gone")


class InSession(subprocess.Popen):
    """torchrun puts each of its processes into a session of its own, which under Linux' autogroups is a CPU share of
    its own. On a busy machine that alone is worth much (the bare loop, paired with itself, took 0.74 of its time at
    load 3.8), so the workers of the bare loop and ours get the same. On a quiet machine it changes nothing."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options, start_new_session=True)


def task() -> Task:
    """From the command line, as run.py writes it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", choices=list("abc"), required=True)
    parser.add_argument("--variant", default="")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--gate", required=True)
    given = parser.parse_args()
    return open_task(given.data, given.work, given.variant, given.rounds, given.gate)


def open_task(data: Path, work: str, variant: str = "", rounds: int = 1, gate: str = "") -> Task:
    deal = np.load(data / f"deal-{CLIENTS[work]}.npz")
    parts = np.split(deal["rows"], deal["ends"][:-1])
    cohorts = deal["cohorts"][np.arange(rounds) % len(deal["cohorts"])]
    x, y = (np.load(data / f"{name}.npy", mmap_mode="c") for name in "xy")
    return Task(work, variant, rounds, x, y, parts, cohorts, gate)


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
