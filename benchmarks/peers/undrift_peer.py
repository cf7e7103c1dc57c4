"""Ours, through its public interface: `ud.run` on the processes engine, the store on, evaluation off.

Evaluation cannot be switched off altogether: G is judged on a test set of one sample, the clients only in the last
round, which is one more than the others run and is not counted.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from importlib.metadata import version

import torch
from common import DECAY, LR, MOMENTUM, InSession, Task, task

import undrift as ud

MODELS = {"a": "mlp(200, 100)", "b": "cnn", "c": "logistic"}


class Given:
    """A selection of given cohorts, one after the other. A round begins with its choice: that is where the gate is."""

    def __init__(self, work: Task, note: str) -> None:
        self.work, self.note, self.cohorts = work, note, iter([*work.cohorts, work.cohorts[0]])

    def choose(self, stream, population: int) -> list[int]:
        self.work.gate(self.note, undrift=ud.__version__, torch=version("torch"))
        return sorted(map(int, next(self.cohorts)))


def main() -> None:
    subprocess.Popen = InSession
    work = task()
    rows, y = torch.from_numpy(work.x), torch.from_numpy(work.y)
    x = rows.view(-1, 28, 28, 1) if work.work == "b" else rows
    federation = ud.Federation(
        "fashion-mnist", (x, y), (x[:1], y[:1]), work.parts, [str(c) for c in range(10)],
        [work.parts[0][:0] for _ in work.parts],
    )  # fmt: skip
    workers = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        ud.run(
            "fedavg", federation, model=MODELS[work.work], rounds=work.rounds + 1, epochs=1, batch=work.batch, lr=LR,
            momentum=MOMENTUM, weight_decay=DECAY, selection=Given(work, f"{workers} workers, store on"),
            evaluate_every=10**6, engine="processes", workers=workers, out=f"{folder}/run",
        )  # fmt: skip


main()
