"""Progress of one run: a bar on a terminal, plain lines without one, nothing with --quiet."""

from __future__ import annotations

import sys
import time
from typing import Any

from undrift.cli.settings import open_log
from undrift.experiment.callback import RunCallback


class Progress(RunCallback):
    """Everything goes to stderr; `log` gets every round and message as a plain line."""

    def __init__(self, quiet: bool = False, log: str | None = None, label: str = "") -> None:
        self.quiet, self.label = quiet, label
        self.log = open_log(log)
        self.bar: Any = None
        self.began_at = self.said_at = time.monotonic()

    def on_start(self, setup: Any, engine: Any) -> None:
        for sentence in setup.notices:
            self.on_message(f"note: {sentence}")
        self.on_message(
            f"{setup.method.name} on {setup.federation.name}: {setup.federation.clients} clients, "
            f"{setup.plan.rounds} rounds, {setup.model_name} ({setup.plan.layout.n:,} numbers)"
        )
        self.on_message(f"{engine.plan_line}; {setup.plan.lockstep_why}")
        self.epsilon, self.headline = setup.epsilon, setup.plan.task.headline
        self.began_at = self.said_at = time.monotonic()
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self.bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(f"{self.headline} {{task.fields[value]}}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self.task = self.bar.add_task(self.label or setup.method.name, total=setup.plan.rounds, value="—")
            self.bar.start()

    def on_round(self, round: int, rounds: int, seconds: float, headline: float | None) -> None:
        shown = "—" if headline is None else f"{headline:.4f}"
        if (epsilon := self.epsilon(round + 1)) is not None:
            shown += f"  ε {epsilon:.3g}"
        if self.log is not None:
            print(f"round {round + 1}/{rounds} {self.headline} {shown} {seconds:.3f} s", file=self.log, flush=True)
        if self.quiet:
            return
        if self.bar is not None:
            self.bar.update(self.task, completed=round + 1, value=shown)
        elif time.monotonic() - self.said_at > 5 or round + 1 == rounds:
            left = (time.monotonic() - self.began_at) / (round + 1) * (rounds - round - 1)
            print(
                f"round {round + 1}/{rounds}  {self.headline} {shown}  {left:.0f} s left", file=sys.stderr, flush=True
            )
            self.said_at = time.monotonic()

    def on_end(self, evaluation_share: float) -> None:
        if self.bar is not None:
            self.bar.stop()
        self.on_message(f"evaluation took {100 * evaluation_share:.0f} % of the time")

    def on_message(self, sentence: str) -> None:
        if not self.quiet:
            print(sentence, file=sys.stderr, flush=True)
        if self.log is not None:
            print(sentence, file=self.log, flush=True)

    def end(self) -> None:
        if self.bar is not None:
            self.bar.stop()
        if self.log is not None:
            self.log.close()
