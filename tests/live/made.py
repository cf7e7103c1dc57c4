"""Run folders made by hand, with the store's own classes: as many as wanted, in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from undrift.store.record import Record


def made_run(
    folder: Path, method: str = "fedavg", rounds: int = 10, done: int = 10, finished: bool | None = None, seconds: float = 0.5,
    events: Sequence[tuple[int, int | None, str, str]] = (), **options: Any,
) -> Path:  # fmt: skip
    """A run of `done` rounds with an accuracy of 0.5 + round / 100, its weights, times and events."""
    folder.mkdir(parents=True)
    table = {
        "method": method,
        "data": "digits",
        "rounds": rounds,
        "clients": 3,
        "thresholds": [0.7],
        "seed": 0,
        **options,
    }
    (folder / "run.toml").write_text(tomli_w.dumps(table))
    (folder / "lock").write_text("")
    (folder / "checkpoints").mkdir()
    record = Record(folder / "run.sqlite")
    for round in range(done):
        add_round(record, round, seconds)
    for event in events:
        record.event(*event)
    if finished or (finished is None and done == rounds):
        record.db.execute("INSERT INTO files VALUES (?, 'model.safetensors', 'x')", (done,))
    record.close()
    return folder


def add_round(record: Record, round: int, seconds: float = 0.5) -> None:
    value = 0.5 + round / 100
    metrics = [(round, None, "G", "global", "accuracy", value)]
    metrics += [(round, client, stage, "own", "accuracy", value) for stage in ("L1", "L2") for client in range(3)]
    notes = [(round, client, "weighting.size", "weight", str(1 / 3)) for client in range(3)]
    times = {"orders": 0.01, "clients": seconds, "aggregation": 0.02, "evaluation": 0.1, "store": 0.01}
    record.commit_round(round, seconds, 0.1, [0, 1, 2], metrics, notes, [], times)
