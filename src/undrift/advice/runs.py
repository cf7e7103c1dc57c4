"""The runs of a race: ordinary run folders below the race's folder, started, paused and continued by `study/tasks.py`."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from undrift.advice.budget import FRESH
from undrift.advice.criterion import GLOBAL_MODEL, Criterion
from undrift.advice.heats import Contender
from undrift.engine.spawn import cores
from undrift.study.compare import how_to_spread
from undrift.study.comparison import Comparison, safe
from undrift.study.dry_run import Estimate
from undrift.study.pausing import rounds_done
from undrift.study.tasks import WORTH_PROCESSES, Federations, Row, StudyCallback, Task, run_tasks


class RaceRuns:
    """The runs of one race. `options`: those of `undrift run` without method, rate and seeds. `expected`: what the dry run
    says about a whole run, by method. `criterion`: what counts. `scored_after`: the rounds of the heats."""

    def __init__(
        self,
        folder: Path,
        options: Mapping[str, Any],
        federations: Federations,
        callback: StudyCallback,
        seeds: tuple[int, int | None] = (0, None),
        expected: Mapping[str, Estimate] | None = None,
        criterion: Criterion = GLOBAL_MODEL,
    ) -> None:
        asked, self.spread = how_to_spread(Comparison((), options, ()))
        self.folder, self.options, self.federations, self.callback = folder, asked.options, federations, callback
        self.seed, self.data_seed = seeds
        self.expected = expected or {}
        self.criterion, self.scored_after = criterion, tuple[int, ...]()
        self.whole = int(options["rounds"])
        self.numbers: dict[str, int] = {}  # of the contenders, in the names of their folders
        self.rounds_run, self.seconds = 0, 0.0

    def scores(self, asked: Sequence[Contender], seeds: int, rounds: int) -> dict[Contender, list[float]]:
        """The headline on validation data after so many rounds, signed so that larger is better."""
        found: dict[Contender, list[float]] = {one: [] for one in asked}
        pairs = [(one, self.seed + number) for number in range(seeds) for one in asked]
        tasks = [self.task(one, seed, rounds) for one, seed in pairs]
        for (one, _), task, row in zip(pairs, tasks, self.advance(tasks)):
            found[one].append(-math.inf if "failed" in row else self.criterion.score(self.folder / task.name, rounds))
        return found

    def fresh(self, asked: Sequence[Contender], seeds: int) -> dict[Contender, list[Row]]:
        """The rows of whole runs on seeds that no heat has seen."""
        found: dict[Contender, list[Row]] = {one: [] for one in asked}
        pairs = [(one, self.seed + FRESH + number) for number in range(seeds) for one in asked]
        for (one, _), row in zip(pairs, self.advance([self.task(one, seed, self.whole) for one, seed in pairs])):
            found[one].append(row)
        return found

    def probe(self, asked: Sequence[Contender], rounds: int) -> tuple[float, float]:
        """(seconds that it takes to start or continue a run, seconds of a round), from the first rounds of these."""
        began = time.perf_counter()
        rows = self.advance([self.task(one, self.seed, rounds) for one in asked])
        wall = (time.perf_counter() - began) * self.at_once(rounds * len(asked))
        done = max(1, sum(row["rounds"] for row in rows))
        training = sum(row["seconds"] for row in rows)
        return max(0.0, wall - training) / max(1, len(asked)), training / done

    def at_once(self, rounds: int) -> int:
        """How many runs go on at the same time while so many rounds are trained. Few rounds do not pay for processes."""
        known = [one.seconds / self.whole for one in self.expected.values()]
        little = rounds * sum(known) / max(1, len(known)) < WORTH_PROCESSES and not self.spread.get("together")
        return 1 if little or self.spread.get("together") is False else int(self.spread.get("cores") or cores())

    def advance(self, tasks: Sequence[Task]) -> list[Row]:
        """Bring every run to the round that its task asks for."""
        places = {self.folder / task.name for task in tasks}
        before, began = sum(map(rounds_done, places)), time.perf_counter()
        rows, _ = run_tasks(tasks, self.folder, self.federations, self.callback, **self.spread)
        self.seconds += time.perf_counter() - began
        self.rounds_run += sum(map(rounds_done, places)) - before
        return rows

    def task(self, contender: Contender, seed: int, rounds: int) -> Task:
        number = self.numbers.setdefault(contender.label, len(self.numbers))
        settings = {
            **self.options, "lr": contender.lr, "seed": seed, "data_seed": seed if self.data_seed is None else self.data_seed,
            "evaluate_every": self.whole, "evaluate_clients": "all",
            **self.criterion.settings(self.scored_after),
        }  # fmt: skip
        task = Task(
            f"{number:03d}-{safe(contender.label)}-seed{seed}", contender.method, settings,
            {"method": contender.label, "seed": seed}, pause_at=None if rounds >= self.whole else rounds,
        )  # fmt: skip
        if (known := self.expected.get(contender.name)) is None:  # a composition
            return task
        return replace(known.of(task), seconds=known.seconds * rounds / self.whole)
