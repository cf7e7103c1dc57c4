"""Runs that pause after some rounds and are continued later: the heats of a race."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from undrift.core.errors import BadRequest
from undrift.experiment.callback import RunCallback
from undrift.store.record import rows_of

if TYPE_CHECKING:
    from undrift.study.tasks import Row, Task


class PauseAfter(RunCallback):
    """Ends a run after so many rounds, as Ctrl-C does: its last round is durable, and it can be resumed."""

    def __init__(self, rounds: int, inner: RunCallback) -> None:
        self.rounds, self.inner, self.paused = rounds, inner, False

    def on_round(self, round: int, rounds: int, seconds: float, headline: float | None) -> None:
        self.inner.on_round(round, rounds, seconds, headline)
        if self.rounds <= round + 1 < rounds:
            self.paused = True
            raise KeyboardInterrupt


def rounds_done(place: Path) -> int:
    """The recorded rounds of a run; 0 where there is none."""
    try:
        return int(rows_of(place, "SELECT COUNT(*) FROM rounds")[0][0])
    except BadRequest:
        return 0


def paused_row(task: Task, place: Path) -> Row:
    """The row of a run that paused, from its record."""
    from undrift.study.load_runs import load_run

    return {**load_run(place).row, **task.row}
