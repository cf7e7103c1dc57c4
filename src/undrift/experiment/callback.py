"""The callback of a run: what it reports while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from undrift.experiment.setup import Setup
    from undrift.round.engine import Engine
    from undrift.store.record import Metric


class RunCallback:
    """Called during a run. Every method does nothing by default: override what you need."""

    def on_message(self, sentence: str) -> None:
        """A message for the user, from the engine while it starts."""

    def on_start(self, setup: Setup, engine: Engine) -> None:
        """Called before the first round that this process runs."""

    def on_metrics(self, round: int, seconds: float, metrics: Sequence[Metric]) -> None:
        """Called after every round (0-based), before `on_round`, with what was evaluated: rows of (round, client, stage,
        data, metric, value)."""

    def on_round(self, round: int, rounds: int, seconds: float, headline: float | None) -> None:
        """Called after every round (0-based). `headline` is the global model's (stage G): accuracy, or what the
        task ranks by; None without one."""

    def on_end(self, evaluation_share: float) -> None:
        """Called after the last round. `evaluation_share` is the share of the time that evaluation took."""
