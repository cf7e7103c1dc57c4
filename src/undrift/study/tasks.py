"""Many runs as one piece of work: tasks, the federations they share, and the rows of their results.

A folder of runs has one subfolder per run and the file `rows.jsonl`, with one line per finished run, written when the run
ends. `run_tasks` can be interrupted at any time. Called again with the same tasks it takes the rows that are there,
resumes the runs that were started, and starts the rest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from annotated_types import Ge

from undrift.core import system
from undrift.core.errors import BadRequest, RunFailed
from undrift.core.files import load_json
from undrift.core.schema import Name, Seed, check, setting
from undrift.experiment.callback import RunCallback
from undrift.experiment.options import from_keywords
from undrift.store import checksums
from undrift.store.durable import append_line, make_folder

if TYPE_CHECKING:  # the live page reads rows without torch
    from undrift.federation.federation import Federation
    from undrift.round.engine import Engine

Row = dict[str, Any]
SHAPE_FEDERATION = (
    "data", "target", "client_column", "task", "partition", "clients", "noise", "domains", "validation", "proxy", "unseen",
    "standardise",
)  # fmt: skip
CLIENT_TIMES, SERVER_TIMES = ("training", "scoring"), ("orders", "aggregation")
WORTH_PROCESSES = 3.0  # expected seconds of training (a third of what small runs take) that pay for starting processes


@dataclass(frozen=True)
class RowLine:
    """A line of rows.jsonl. The other keys are those of `--json`."""

    task: Name = setting(..., "folder of the run; FOLDER@ROUNDS where the run paused and may go on")
    run: Name = setting(..., "path of the run when it was made; only its last part is used, so the folder can be moved")
    method: Name = setting(..., "the method's label")
    seed: Seed = setting(..., "seed of the run")
    rounds: Annotated[int, Ge(0)] = setting(..., "rounds that were run")
    seconds: Annotated[float, Ge(0)] = setting(..., "wall time of the rounds")
    stages: dict[Literal["G", "L1", "L2"], dict[str, Any] | None] = setting(..., "the evaluated stages")
    times: dict[str, float] = setting({}, "seconds per client's round and per round of the server")
    accuracy: float | None = setting(None, "of the global model on the test set")
    headline: dict[str, Any] = setting({}, "the metric that ranks: `name`, `value` of the global model, `better`")
    row: Name | None = setting(None, "of a preset: the row")
    column: Name | None = setting(None, "of a preset: the column")


@dataclass(frozen=True)
class Task:
    """One run: a method with all its options, and what its row holds beside the run's own summary."""

    name: str  # of its folder
    method: Any
    settings: Mapping[str, Any]
    row: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0  # expected, of training
    pause_at: int | None = None  # rounds after which the run pauses; it is continued by a task of the same name
    alike: str = ""  # equal for runs whose clients can share stacks; empty where they cannot
    beside: int = 1  # so many of them fill a stack

    @property
    def rounds(self) -> int:
        return int(self.pause_at or self.settings.get("rounds", 50))

    @property
    def key(self) -> str:
        """The name of its row. A run that pauses several times has a row for each of them."""
        return self.name if self.pause_at is None else f"{self.name}@{self.pause_at}"

    @property
    def method_label(self) -> str:
        """The name of the method, or of the preset's row, in messages."""
        return str(self.row.get("row") or self.row.get("method", self.method))

    @property
    def label(self) -> str:
        """The name of the task in messages: the method, or the row and the column of a preset."""
        return f"{self.method_label}, {self.row['column']}" if "column" in self.row else self.method_label


class StudyCallback:
    """Called while many runs go on. Every method does nothing by default: override what you need."""

    def on_message(self, sentence: str) -> None:
        """Something the user should know, before the first run."""

    def on_start(self, tasks: Sequence[Task], plan: str, at_once: int) -> None:
        """Before the first of these tasks. `plan` is a phrase that says how they share the cores."""

    def on_round(self, task: Task, round: int, headline: float | None) -> None:
        """After a round of a task (1-based). Runs in other processes report at most five rounds a second."""

    def on_row(self, task: Task, row: Row) -> None:
        """After a task: its row, with the key `failed` if the run failed."""

    def on_tick(self) -> None:
        """At short intervals while tasks run, for displays."""


class Federations:
    """One federation for all runs that ask for the same one."""

    def __init__(self, given: Federation | None = None) -> None:
        self.given = given
        self.made: dict[str, Federation] = {}
        self._keys: dict[str, str] = {}  # by the settings that decide it: reading all options takes 0.3 ms

    def key(self, settings: Mapping[str, Any]) -> str:
        """Equal for settings that ask for the same federation."""
        if self.given is not None:
            return "given"
        asked = repr([settings.get(name, ...) for name in (*SHAPE_FEDERATION, "seed", "data_seed")])
        if asked not in self._keys:
            options = from_keywords(dict(settings))
            shape = [(name, getattr(options, name)) for name in SHAPE_FEDERATION]
            self._keys[asked] = repr([*shape, options.federation_seed])
        return self._keys[asked]

    def of(self, settings: Mapping[str, Any]) -> Federation:
        if self.given is not None:
            return self.given
        key = self.key(settings)
        if key not in self.made:
            from undrift.experiment.setup import build_federation

            self.made[key] = build_federation(from_keywords(dict(settings)))
        return self.made[key]

    def keep_only(self, tasks: Sequence[Task]) -> None:
        """Release the federations that none of these tasks needs."""
        if self.made:
            needed = {self.key(task.settings) for task in tasks}
            for key in set(self.made) - needed:
                del self.made[key]


def run_task(
    task: Task, folder: Path, federation: Federation, callback: RunCallback, engine: Engine | None = None
) -> Row:
    """Start a run, or resume it where it has a checkpoint. Returns its row. `engine` is one that already runs."""
    from undrift.experiment.foreign_code import foreign_code
    from undrift.experiment.resume import resume
    from undrift.experiment.runner import run_options
    from undrift.experiment.summary import nothing_learned
    from undrift.study.pausing import PauseAfter, paused_row, rounds_done

    place = folder / task.name
    if task.pause_at is not None:
        if rounds_done(place) >= task.pause_at:
            return paused_row(task, place)
        callback = PauseAfter(task.pause_at, callback)
    try:
        if has_checkpoint(place):
            method = None if isinstance(task.method, str) else task.method
            asked = foreign_code({**task.settings, "method": task.method})  # its run.toml may not name any other code
            result = resume(place, federation=federation, callback=callback, method=method, trust=asked, started=engine)
        else:
            settings = {"force": True, **task.settings, "method": task.method, "out": str(place)}
            result = run_options(from_keywords(settings), federation, callback, started=engine)
    except (RunFailed, BadRequest) as error:
        return failed_row(task, place, str(error))
    except KeyboardInterrupt:
        if not isinstance(callback, PauseAfter) or not callback.paused:
            raise
        return paused_row(task, place)
    if lost := nothing_learned(result.rows):  # its accuracy would be that of the initial model
        return failed_row(task, place, lost)
    return {**result.summary, "times": seconds_per_round(result.rows), **task.row}


def seconds_per_round(query: Callable[..., list[tuple[Any, ...]]]) -> dict[str, float]:
    """Mean seconds of work per round, of one client and of the server."""
    spent = dict(query("SELECT what, SUM(seconds) FROM times GROUP BY what"))
    selected, rounds = query("SELECT COALESCE(SUM(json_array_length(cohort)), 0), COUNT(*) FROM rounds")[0]
    client, server = (sum(spent.get(what, 0.0) for what in kinds) for kinds in (CLIENT_TIMES, SERVER_TIMES))
    return {"client": client / max(1, selected), "server": server / max(1, rounds)}


def has_checkpoint(place: Path) -> bool:
    """Whether the run in a folder can be resumed."""
    from undrift.store.record import rows_of

    try:
        count = rows_of(place, "SELECT COUNT(*) FROM files WHERE path LIKE 'checkpoints/%'")[0][0]
    except BadRequest:
        return False
    return (place / "run.toml").exists() and count > 0


def failed_row(task: Task, place: Path, why: str) -> Row:
    return {
        "run": str(place), "method": task.label, "rounds": 0, "seconds": 0.0, "accuracy": None,
        "stages": {"G": None, "L1": None, "L2": None}, "failures": [], "model_sha256": None,
        **task.row, "failed": why.strip().splitlines()[0], "detail": why,
    }  # fmt: skip


def run_tasks(
    tasks: Sequence[Task],
    folder: Path,
    federations: Federations,
    callback: StudyCallback | None = None,
    cores: int | None = None,
    together: bool | None = None,
) -> tuple[list[Row], float]:
    """Rows of all tasks in their order, and the wall seconds without start-up. `together=True` runs them side by side in
    processes of their own. By default this happens where it saves time."""
    from undrift.engine.spawn import cores as available
    from undrift.study import run_pool

    callback = callback or StudyCallback()
    rows = read_rows(folder)
    waiting = [task for task in tasks if task.key not in rows]
    make_folder(folder)

    def store_row(task: Task, row: Row) -> None:
        rows[task.key] = row
        if "failed" not in row:
            append_line(folder / "rows.jsonl", json.dumps(checksums.with_crc({"task": task.key, **row})))
        callback.on_row(task, row)

    cores = cores or available()
    expected = sum(task.seconds for task in waiting)
    if together is None:
        worth = len(waiting) > 1 and cores > 1 and expected > WORTH_PROCESSES
        together = worth and system.starts_workers()
    with locked_folder(folder):
        if together and waiting:
            seconds = run_pool.run_together(waiting, folder, federations, cores, callback, store_row)
        else:
            seconds = run_in_turn(waiting, folder, federations, callback, store_row)
    return [rows[task.key] for task in tasks], seconds


def run_in_turn(
    tasks: Sequence[Task],
    folder: Path,
    federations: Federations,
    callback: StudyCallback,
    store_row: Callable[[Task, Row], None],
) -> float:
    """Run the tasks in this process: one bundle after another. Returns the wall seconds."""
    from undrift.study.bundles import bundled, carry_out, said

    began, bundles = time.perf_counter(), bundled(tasks, 1)
    callback.on_start(tasks, said(bundles, 1, ""), 1)
    for number, bundle in enumerate(bundles):
        federations.keep_only([task for later in bundles[number:] for task in later])
        carry_out(
            bundle,
            folder,
            {task.name: federations.of(task.settings) for task in bundle},
            lambda task: ForwardRounds(task, callback),
            store_row,
        )
    return time.perf_counter() - began


@dataclass
class ForwardRounds(RunCallback):
    """Passes the rounds of one run on to the study's callback."""

    task: Task
    callback: StudyCallback

    def on_round(self, round: int, rounds: int, seconds: float, headline: float | None) -> None:
        self.callback.on_round(self.task, round + 1, headline)
        self.callback.on_tick()


def read_rows(folder: Path) -> dict[str, Row]:
    """Rows of finished runs by task. A line that a kill cut short is skipped: its run is there and gives it again."""
    rows: dict[str, Row] = {}
    path = folder / "rows.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            row = load_json(line.decode())
        except (ValueError, RecursionError):
            if line.startswith(b'{"task"') and not line.endswith(b"}"):
                continue
            damaged(path, number)
        row = check(RowLine, row, f"{path}, line {number}", more=True)
        try:
            row = checksums.without_crc(row)
        except ValueError:
            damaged(path, number)
        row["run"] = str(folder / Path(row["run"]).name)  # the folder may have been moved
        rows[row.pop("task")] = row
    return rows


def damaged(path: Path, number: int) -> NoReturn:
    raise BadRequest(
        f"line {number} of {path} is damaged; delete the line, and --resume takes its numbers from the run again"
    )


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock the folder against a second process."""
    import os

    from undrift.store.run_store import locked

    lock = locked(folder)
    try:
        yield
    finally:
        os.close(lock)
