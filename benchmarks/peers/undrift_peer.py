"""Ours, through its public interface: `ud.run` on the processes engine, the store on, evaluation off.

Evaluation cannot be switched off altogether: G is judged on a test set of one sample, the clients only in the last
round, which is one more than the others run and is not counted.
"""

from __future__ import annotations

import os
import tempfile
from importlib.metadata import version

import torch
from common import DECAY, LR, MOMENTUM, task

import undrift as ud

MODELS = {"a": "mlp(200, 100)", "b": "cnn", "c": "logistic"}


class Given:
    """A selection of given cohorts, one after the other."""

    def __init__(self, cohorts) -> None:
        self.cohorts = iter(cohorts)

    def choose(self, stream, population: int) -> list[int]:
        return sorted(map(int, next(self.cohorts)))


def main() -> None:
    work = task()
    rows, y = torch.from_numpy(work.x), torch.from_numpy(work.y)
    x = rows.view(-1, 28, 28, 1) if work.work == "b" else rows
    federation = ud.Federation(
        "fashion-mnist", (x, y), (x[:1], y[:1]), work.parts, [str(c) for c in range(10)],
        [work.parts[0][:0] for _ in work.parts],
    )  # fmt: skip
    workers = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        result = ud.run(
            "fedavg", federation, model=MODELS[work.work], rounds=work.rounds + 1, epochs=1, batch=work.batch, lr=LR,
            momentum=MOMENTUM, weight_decay=DECAY, selection=Given([*work.cohorts, work.cohorts[0]]),
            evaluate_every=10**6, engine="processes", workers=workers, out=f"{folder}/run",
        )  # fmt: skip
        seconds = [row[0] for row in result.rows("SELECT seconds FROM rounds ORDER BY round")]
    work.report(seconds, f"{workers} workers, store on", undrift=ud.__version__, torch=version("torch"))


main()
