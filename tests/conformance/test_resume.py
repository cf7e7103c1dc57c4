"""A run that was stopped after any round and resumed equals one that was not: vectors, rows, states."""

from __future__ import annotations

import pytest
import torch

import undrift as ud
from undrift.reopen import resume

ROUNDS = 3
TABLES = {
    "rounds": "round, lr, cohort",
    "metrics": "round, client, stage, data, metric, value",
    "notes": "round, client, part, name, value",
}


class StopAfter:
    """Ctrl-C after round t."""

    def __init__(self, round: int) -> None:
        self.last = round

    def round(self, round, rounds, seconds, accuracy):
        if round == self.last:
            raise KeyboardInterrupt


def rows(result):
    return {table: sorted(map(repr, result.rows(f"SELECT {what} FROM {table}"))) for table, what in TABLES.items()}


def test_resumed_at_every_round_equals_undisturbed(row, settings, federation, tmp_path):
    options = {**settings(row), "cohort": 5, "evaluate_every": 2, "checkpoint_every": 1}
    whole = ud.run(row.text, federation, out=tmp_path / "whole", **options)
    for t in range(ROUNDS - 1):
        folder = tmp_path / f"stopped{t}"
        with pytest.raises(KeyboardInterrupt):
            ud.run(row.text, federation, out=folder, watcher=StopAfter(t), **options)
        resumed = resume(folder, federation=federation, model=options["model"], checkpoint_every=1)
        assert torch.equal(resumed.vector, whole.vector), f"stopped after round {t}"
        assert torch.equal(resumed.world.vector, whole.world.vector), f"stopped after round {t}"
        assert rows(resumed) == rows(whole), f"stopped after round {t}"
        assert resumed.rows("SELECT round FROM events WHERE kind='resumed'") == [(t + 1,)]
