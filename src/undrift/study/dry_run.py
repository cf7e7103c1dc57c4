"""A dry run sets up every task once before the first one starts. It finds bad settings early and estimates the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from undrift.core.errors import BadRequest
from undrift.experiment.options import from_keywords
from undrift.study.tasks import Federations, StudyCallback, Task


@dataclass(frozen=True)
class Estimate:
    """What the dry run of one task says about it."""

    seconds: float  # of training; 0 where a step cannot be timed
    has_global_model: bool


def dry_run(
    tasks: Sequence[Task], federations: Federations, callback: StudyCallback, preset: str | None = None
) -> list[Estimate]:
    """Set up every task, in order, without running it. An error of a preset's task names the preset and the cell.

    The callback gets every notice of the setups, once per method."""
    from undrift.experiment.engines import expected_seconds
    from undrift.experiment.setup import prepare

    estimates, notices = [], set[str]()
    for number, task in enumerate(tasks):
        federations.keep_only(tasks[number:])
        try:
            setup = prepare(from_keywords({**task.settings, "method": task.method}), federations.of(task.settings))
        except BadRequest as error:
            if preset is None:
                raise
            raise BadRequest(f"{preset}, {task.label}: {error}") from None
        for sentence in setup.notices:
            notice = f"{task.method_label}: {sentence}"
            if notice not in notices:
                callback.on_message(notice)
                notices.add(notice)
        try:
            seconds = expected_seconds(setup)
        except Exception:  # the user's model or loss fails; it fails again in a client, with an error that names it
            seconds = 0.0
        estimates.append(Estimate(seconds, has_global_model=setup.plan.private is None))
    return estimates
