"""Progress of many runs: a live table on a terminal, plain lines without one, nothing with --quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from undrift.cli.settings import open_log
from undrift.core.words import clock
from undrift.experiment.tables import headline_value
from undrift.study.tasks import Row, StudyCallback, Task

EVERY = 5.0  # seconds between plain lines


class Board(StudyCallback):
    """Everything goes to stderr; `log` gets every round and message as a plain line."""

    def __init__(self, quiet: bool = False, log: str | None = None) -> None:
        self.quiet = quiet
        self.log = open_log(log)
        self.live: Any = None
        self.tasks: Sequence[Task] = ()

    def on_message(self, sentence: str) -> None:
        self.say(f"note: {sentence}")

    def on_start(self, tasks: Sequence[Task], plan: str, at_once: int) -> None:
        self.end_live()
        self.tasks, self.at = tasks, dict[str, tuple[int, float | None]]()
        self.over: dict[str, Row] = {}
        self.began = self.said = time.monotonic()
        if not tasks:
            return
        seconds = sum(task.seconds for task in tasks) / at_once
        least = f"; training takes at least {clock(seconds)}" if seconds > 10 else ""
        self.say(f"{len(tasks)} run{'s' * (len(tasks) > 1)}, {plan}{least}")
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self.live = Live(self.table(), console=Console(stderr=True), refresh_per_second=4)
            self.live.start()

    def on_round(self, task: Task, round: int, headline: float | None) -> None:
        self.at[task.name] = round, headline
        if self.log is not None:
            print(f"{task.name} round {round}/{task.rounds} G {shown(headline)}", file=self.log, flush=True)

    def on_row(self, task: Task, row: Row) -> None:
        self.over[task.name] = row
        if "failed" in row:
            self.say(f"{task.name} failed: {row['failed']}")
        elif self.live is None:
            self.say(f"{len(self.over)}/{len(self.tasks)}  {task.name}  G {shown(headline_value(row))}  {row['seconds']:.1f} s"
                     f"{self.left()}")  # fmt: skip

    def on_tick(self) -> None:
        if self.live is not None:
            self.live.update(self.table())
        elif time.monotonic() - self.said > EVERY and not self.quiet:
            running = [task for task in self.tasks if task.name in self.at and task.name not in self.over]
            where = ", ".join(f"{task.label} {self.at[task.name][0]}/{task.rounds}" for task in running[:4])
            self.say(f"{len(self.over)}/{len(self.tasks)}  {where}{self.left()}")

    def say(self, line: str) -> None:
        self.said = time.monotonic()
        if self.log is not None:
            print(line, file=self.log, flush=True)
        if self.live is not None:
            self.live.console.print(line, markup=False, highlight=False)
        elif not self.quiet:
            print(line, file=sys.stderr, flush=True)

    def share(self) -> float:
        """The share of the work that is done, by expected time."""
        whole = sum(max(task.seconds, 1e-3) for task in self.tasks)
        done = 0.0
        for task in self.tasks:
            part = 1.0 if task.name in self.over else self.at.get(task.name, (0, None))[0] / max(1, task.rounds)
            done += part * max(task.seconds, 1e-3)
        return done / whole

    def left(self) -> str:
        """The expected time to the end, as text."""
        share = self.share()
        if share <= 0.01 or share >= 1:
            return ""
        return f"  about {clock((time.monotonic() - self.began) * (1 - share) / share)} left"

    def table(self) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        done = len(self.over)
        table = Table(
            title=f"{done} of {len(self.tasks)} runs done{self.left()}", title_justify="left", box=None, pad_edge=False
        )
        for name in ("run", "", "round", "G", ""):
            table.add_column(name, justify="left" if name in ("run", "") else "right", no_wrap=True)
        running = [task for task in self.tasks if task.name in self.at and task.name not in self.over]
        finished = [task for task in self.tasks if task.name in self.over]
        waiting = [task for task in self.tasks if task.name not in self.at and task.name not in self.over]
        lines = max(6, (self.live.console.height if self.live else 24) - 6)
        some = [*finished[-max(1, lines - len(running) - min(3, len(waiting))) :], *running]
        for task in [*some, *waiting[: max(0, lines - len(some))]]:
            round, headline = self.at.get(task.name, (0, None))
            row = self.over.get(task.name)
            state = (
                ""
                if task in running
                else "waiting"
                if row is None
                else "failed"
                if "failed" in row
                else f"{row['seconds']:.1f} s"
            )
            bar = ProgressBar(task.rounds, task.rounds if row else round, width=20)
            table.add_row(f"{task.label[:40]}  seed {task.row.get('seed', 0)}", bar, f"{task.rounds if row else round}/{task.rounds}",
                          shown(headline_value(row) if row else headline), state)  # fmt: skip
        return table

    def end_live(self) -> None:
        if self.live is not None:
            self.live.update(self.table())
            self.live.stop()
            self.live = None

    def end(self) -> None:
        self.end_live()
        if self.log is not None:
            self.log.close()
            self.log = None


def shown(headline: float | None) -> str:
    return "—" if headline is None else f"{headline:.4f}"
