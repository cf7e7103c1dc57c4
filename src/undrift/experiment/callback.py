"""What a run tells while it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from undrift.experiment.setup import Setup
    from undrift.round.engine import Engine


class RunCallback:
    """Called during a run. Every method does nothing by default: override what you need."""

    def on_message(self, sentence: str) -> None:
        """Something the user should know, from the engine while it starts."""

    def on_start(self, setup: Setup, engine: Engine) -> None:
        """Before the first round of this process."""

    def on_round(self, round: int, rounds: int, seconds: float, accuracy: float | None) -> None:
        """After every round (0-based); `accuracy` is stage G's, where there is a global model."""

    def on_end(self, evaluation_share: float) -> None:
        """After the last round; the share of the time that evaluation took."""
