"""A run that was stopped and resumed equals one that was not, for every row of the table: vectors, rows, states."""

from __future__ import annotations

import pytest
import torch

import undrift as ud
from undrift.experiment.callback import RunCallback
from undrift.experiment.resume import resume

ROUNDS = 3
TABLES = {
    "rounds": "round, lr, cohort",
    "metrics": "round, client, stage, data, metric, value",
    "notes": "round, client, part, name, value",
}


class StopAfter(RunCallback):
    """Ctrl-C after round t."""

    def __init__(self, round: int) -> None:
        self.last = round

    def on_round(self, round, rounds, seconds, accuracy):
        if round == self.last:
            raise KeyboardInterrupt


def recorded(result):
    return {table: sorted(map(repr, result.rows(f"SELECT {what} FROM {table}"))) for table, what in TABLES.items()}


def test_resumed_equals_undisturbed(row, rows, settings, federation, tmp_path):
    """One stop per row, the rows in turn after each round that another one follows: a row's states are written and read
    in the same way whatever the round. `tests/resume/test_resume.py` stops one method after every round."""
    t = rows.index(row) % (ROUNDS - 1)
    options = {**settings(row), "cohort": 5, "evaluate_every": 2, "checkpoint_every": 1}
    whole = ud.run(row.text, federation, out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        ud.run(row.text, federation, out=tmp_path / "stopped", callback=StopAfter(t), **options)
    resumed = resume(tmp_path / "stopped", federation=federation, model=options["model"], checkpoint_every=1)
    assert torch.equal(resumed.vector, whole.vector), f"stopped after round {t}"
    assert torch.equal(resumed.server_state.vector, whole.server_state.vector), f"stopped after round {t}"
    assert recorded(resumed) == recorded(whole), f"stopped after round {t}"
    assert resumed.rows("SELECT round FROM events WHERE kind='resumed'") == [(t + 1,)]
