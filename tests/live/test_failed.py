"""A run that failed says why, until it is resumed; one that was interrupted is only stopped."""

from __future__ import annotations

import pytest

import undrift as ud
from undrift.experiment.callback import RunCallback
from undrift.live.records import read_run
from undrift.store.record import rows_of

SMALL = {"rounds": 4, "clients": 3, "epochs": 1, "model": "logistic", "checkpoint_every": 1}
EVENTS = "SELECT round, kind, detail FROM events WHERE kind = 'failed'"


class EndsIn(RunCallback):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def on_round(self, round: int, rounds: int, seconds: float, accuracy: float | None) -> None:
        if round == 1:
            raise self.error


def test_a_failure_is_kept_and_gone_after_a_resume(tmp_path):
    with pytest.raises(ArithmeticError):
        ud.run("fedavg", out=str(tmp_path / "run"), callback=EndsIn(ArithmeticError("my own words")), **SMALL)
    row = read_run("run", tmp_path / "run", False)
    assert (row.state, row.why, row.done) == ("failed", "my own words", 2)
    assert rows_of(tmp_path / "run", EVENTS) == [(2, "failed", "my own words")]
    ud.resume(tmp_path / "run")
    assert rows_of(tmp_path / "run", EVENTS) == []
    assert read_run("run", tmp_path / "run", False).state == "finished"


def test_an_interrupted_run_is_stopped(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        ud.run("fedavg", out=str(tmp_path / "run"), callback=EndsIn(KeyboardInterrupt()), **SMALL)
    row = read_run("run", tmp_path / "run", False)
    assert (row.state, row.resume) == ("stopped", f"undrift resume {tmp_path / 'run'}")
