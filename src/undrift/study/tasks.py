"""Many runs as one piece of work: what is to be run, on which federations, and what is kept of it.

A folder of runs has one subfolder per run and `rows.jsonl`, one line per finished run, written when it ends. Whatever
stops the work, `finish` with the same tasks takes the rows that are there, resumes what was begun and starts the rest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest, RunFailed
from undrift.experiment.callback import RunCallback
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import build_federation
from undrift.federation.federation import Federation

Row = dict[str, Any]
DEALT = ("data", "partition", "clients", "noise", "domains", "validation", "proxy", "unseen", "data_seed", "seed")
AT_CLIENTS, AT_SERVER = ("training", "scoring"), ("orders", "aggregation")
WORTH_IT = 3.0  # expected seconds of training, a third of what small runs take; below, starting processes gains nothing


@dataclass(frozen=True)
class Task:
    """One run: a method with all its options, and what its row says beside the run's own summary."""

    name: str  # of its folder
    method: Any
    settings: Mapping[str, Any]
    row: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0  # expected, in training steps

    @property
    def rounds(self) -> int:
        return int(self.settings.get("rounds", 50))

    @property
    def label(self) -> str:
        """For eyes: the row's method, or the row and column of a preset."""
        if "column" in self.row:
            return f"{self.row['row']}, {self.row['column']}"
        return str(self.row.get("method", self.method))


class StudyCallback:
    """Whoever wants to see many runs go by. Does nothing."""

    def note(self, sentence: str) -> None: ...
    def begin(self, tasks: Sequence[Task], plan: str, at_once: int) -> None: ...
    def moved(self, task: Task, round: int, accuracy: float | None) -> None: ...
    def ended(self, task: Task, row: Row) -> None: ...
    def tick(self) -> None: ...


class Federations:
    """One federation for all runs that ask for the same one."""

    def __init__(self, given: Federation | None = None) -> None:
        self.given, self.made = given, dict[str, Federation]()

    def key(self, settings: Mapping[str, Any]) -> str:
        options = from_keywords(dict(settings))
        dealt = {name: getattr(options, name) for name in DEALT if name not in ("seed", "data_seed")}
        return "given" if self.given is not None else repr([*dealt.items(), options.federation_seed])

    def of(self, settings: Mapping[str, Any]) -> Federation:
        if self.given is not None:
            return self.given
        key = self.key(settings)
        if key not in self.made:
            self.made[key] = build_federation(from_keywords(dict(settings)))
        return self.made[key]

    def keep(self, tasks: Sequence[Task]) -> None:
        """Let go of federations that none of these runs needs."""
        needed = {self.key(task.settings) for task in tasks}
        for key in set(self.made) - needed:
            del self.made[key]


def one(task: Task, folder: Path, federation: Federation, callback: Any) -> Row:
    """Start a run, or go on with it where it was begun; its row."""
    from undrift.experiment.resume import resume
    from undrift.experiment.runner import run

    place = folder / task.name
    try:
        if begun(place):
            text = isinstance(task.method, str)
            result = resume(place, federation=federation, callback=callback, method=None if text else task.method)
        else:
            result = run(task.method, federation, callback=callback, out=str(place), **{"force": True, **task.settings})
    except (RunFailed, BadRequest) as error:
        return failed(task, place, str(error))
    return {**result.summary, "times": times(result.rows), **task.row}


def times(rows: Callable[..., list[tuple[Any, ...]]]) -> dict[str, float]:
    """Seconds that a client works per round, and the server."""
    spent = dict(rows("SELECT what, SUM(seconds) FROM times GROUP BY what"))
    asked, rounds = rows("SELECT COALESCE(SUM(json_array_length(cohort)), 0), COUNT(*) FROM rounds")[0]
    client, server = (sum(spent.get(what, 0.0) for what in kinds) for kinds in (AT_CLIENTS, AT_SERVER))
    return {"client": client / max(1, asked), "server": server / max(1, rounds)}


def begun(place: Path) -> bool:
    """Whether there is something to go on with."""
    from undrift.store.record import rows_of

    try:
        found = rows_of(place, "SELECT COUNT(*) FROM files WHERE path LIKE 'checkpoints/%'")
    except BadRequest:
        return False
    return (place / "run.toml").exists() and found[0][0] > 0


def failed(task: Task, place: Path, why: str) -> Row:
    return {
        "run": str(place), "method": task.label, "rounds": 0, "seconds": 0.0, "accuracy": None,
        "stages": {"G": None, "L1": None, "L2": None}, "failures": [], "model_sha256": None,
        **task.row, "failed": why.strip().splitlines()[0], "detail": why,
    }  # fmt: skip


def finish(
    tasks: Sequence[Task], folder: Path, federations: Federations, callback: StudyCallback | None = None,
    cores: int | None = None, together: bool | None = None,
) -> tuple[list[Row], float]:  # fmt: skip
    """Rows of all tasks in their order, and the wall seconds that it took, start-up apart. `together`: side by side on
    processes of their own; by default where that gains time."""
    from undrift.engine.spawn import cores as available
    from undrift.study import run_pool as crew

    callback = callback or StudyCallback()
    rows = read_rows(folder)
    waiting = [task for task in tasks if task.name not in rows]
    folder.mkdir(parents=True, exist_ok=True)

    def keep(task: Task, row: Row) -> None:
        rows[task.name] = row
        if "failed" not in row:
            with (folder / "rows.jsonl").open("a") as file:
                print(json.dumps({"task": task.name, **row}), file=file, flush=True)
        callback.ended(task, row)

    cores = cores or available()
    expected = sum(task.seconds for task in waiting)
    if together is None:
        together = len(waiting) > 1 and cores > 1 and expected > WORTH_IT
    with guarded(folder):
        if together and waiting:
            seconds = crew.work(waiting, folder, federations, cores, callback, keep)
        else:
            seconds = here(waiting, folder, federations, callback, keep)
    return [rows[task.name] for task in tasks], seconds


def here(
    tasks: Sequence[Task],
    folder: Path,
    federations: Federations,
    callback: StudyCallback,
    keep: Callable[[Task, Row], None],
) -> float:
    """One after another, in this process."""
    began = time.perf_counter()
    callback.begin(tasks, "one run after another", 1)
    for number, task in enumerate(tasks):
        federations.keep(tasks[number:])
        keep(task, one(task, folder, federations.of(task.settings), Follower(task, callback)))
    return time.perf_counter() - began


@dataclass
class Follower(RunCallback):
    """Passes the rounds of one run on to the study's callback."""

    task: Task
    callback: StudyCallback

    def on_round(self, round: int, rounds: int, seconds: float, accuracy: float | None) -> None:
        self.callback.moved(self.task, round + 1, accuracy)
        self.callback.tick()


def read_rows(folder: Path) -> dict[str, Row]:
    """Rows of finished runs by task. A last line that was cut short by a kill is not there."""
    rows: dict[str, Row] = {}
    path = folder / "rows.jsonl"
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        rows[row.pop("task")] = row
    return rows


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """A second process is kept out."""
    import os

    from undrift.store.run_store import locked

    lock = locked(folder)
    try:
        yield
    finally:
        os.close(lock)
