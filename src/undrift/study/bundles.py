"""Bundles of runs: those whose clients can share stacks (lock-step) are carried out side by side in one process.

A stack gains with every client in it, and small cohorts leave it half empty. The seeds of a method, the rates of a grid, and
methods that differ only at the server fill it. Every run has its own loop and its own record, as if it were alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undrift.core import samples
from undrift.engine.side_by_side import Ended, SideBySide, side_by_side
from undrift.experiment.callback import RunCallback
from undrift.study.tasks import Row, Task, run_task

if TYPE_CHECKING:
    from undrift.experiment.setup import Setup
    from undrift.federation.federation import Federation

DATA_BYTES = 1 << 30  # of the federations of a bundle: every seed has its own
LEAST_SECONDS = 1e-3  # of a task that could not be timed


def fitting(setup: Setup) -> tuple[str, int]:
    """(equal for runs that can share stacks, how many of them fill one). No gain is left where a cohort fills a stack."""
    lockstep, plan, options = setup.runtime.lockstep, setup.plan, setup.options
    spread = options.engine not in ("auto", "inline") or (options.workers or 1) > 1
    if lockstep is None or spread or options.track:  # a tracker may know one run per process
        return "", 1
    federation = setup.federation
    cohort = plan.cohort or plan.clients
    size = math.ceil(plan.total / plan.clients)
    run_bytes = cohort * lockstep.bytes_of(size, size)
    tensors = [federation.x, federation.y, federation.test_x, federation.test_y]
    data_bytes = sum(leaf.nbytes for one in tensors for leaf in samples.leaves(one))
    return lockstep.alike, max(1, int(min(lockstep.bytes / run_bytes, DATA_BYTES / max(1, data_bytes))))


def bundled(tasks: Sequence[Task], cores: int) -> list[list[Task]]:
    """The tasks in bundles, in an order that keeps few federations at a time. No bundle has more than one core's share."""
    alike: dict[str, list[Task]] = {}
    for task in tasks:
        alike.setdefault(task.alike or task.name, []).append(task)
    total, found = expected(tasks), list[list[Task]]()
    for own in alike.values():
        pieces = max(
            math.ceil(len(own) / min(task.beside for task in own)), math.ceil(round(cores * expected(own) / total, 6))
        )
        ends = [len(own) * piece // min(pieces, len(own)) for piece in range(min(pieces, len(own)) + 1)]
        found += [own[start:end] for start, end in pairwise(ends)]
    place = {task.name: number for number, task in enumerate(tasks)}
    found.sort(key=lambda bundle: (bundle[0].row.get("seed", 0), -expected(bundle), place[bundle[0].name]))
    if cores == 1 or len(found) <= cores:
        return found
    # The last bundles are halved, so that all cores finish at about the same time.
    halves = [half for own in found[-cores:] for half in (own[: len(own) // 2], own[len(own) // 2 :]) if half]
    return [*found[:-cores], *halves]


def expected(tasks: Sequence[Task]) -> float:
    return sum(max(task.seconds, LEAST_SECONDS) for task in tasks)


def carry_out(
    bundle: Sequence[Task],
    folder: Path,
    federations: Mapping[str, Federation],
    callback_of: Callable[[Task], RunCallback],
    on_row: Callable[[Task, Row], None],
    run: Callable[..., Row] = run_task,
) -> None:
    """Run the tasks of a bundle on federations by name of the task. All callbacks are called by this thread."""

    def one(task: Task, engine: SideBySide) -> Row:
        return run(task, folder, federations[task.name], Later(engine, callback_of(task)), engine)

    def ended(number: int, how: Ended) -> None:
        if how.error is not None:
            raise how.error
        assert how.value is not None
        on_row(bundle[number], how.value)

    if len(bundle) == 1:
        on_row(bundle[0], run(bundle[0], folder, federations[bundle[0].name], callback_of(bundle[0])))
    else:
        side_by_side([partial(one, task) for task in bundle], ended)


class Later(RunCallback):
    """Leaves the calls of a run to the thread that started it."""

    def __init__(self, engine: SideBySide, inner: RunCallback) -> None:
        self.engine, self.inner = engine, inner

    def on_round(self, *about: Any) -> None:
        self.engine.calls.append(partial(self.inner.on_round, *about))


def said(bundles: Sequence[Sequence[Task]], cores: int, each: str) -> str:
    """How the runs share the cores, as a phrase."""
    most, at_once = max(map(len, bundles), default=1), min(len(bundles), cores)
    if most > 1:
        processes = f"{at_once} processes" if at_once > 1 else "one process"
        return f"in {processes}, up to {most} side by side"
    return f"{at_once} runs at a time, {each}" if at_once > 1 or each else "one run after another"
