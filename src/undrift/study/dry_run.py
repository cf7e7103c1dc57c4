"""A dry run sets up every task once before the first one starts. It finds bad settings early and estimates the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from undrift.core.errors import BadRequest
from undrift.core.words import some
from undrift.experiment.options import from_keywords
from undrift.study.bundles import fitting
from undrift.study.tasks import Federations, StudyCallback, Task


@dataclass(frozen=True)
class Estimate:
    """What the dry run of one task says about it."""

    seconds: float  # of training; 0 where a step cannot be timed
    has_global_model: bool
    weighting: str  # how clients are weighed
    alike: str  # equal for runs whose clients can share stacks; empty where they cannot
    beside: int  # so many of them fill a stack

    def of(self, task: Task) -> Task:
        """The task with what is expected of it."""
        return replace(task, seconds=self.seconds, alike=self.alike, beside=self.beside)


def dry_run(
    tasks: Sequence[Task], federations: Federations, callback: StudyCallback, preset: str | None = None
) -> list[Estimate]:
    """Set up every task, in order, without running it. An error of a preset's task names the preset and the cell.

    The callback gets every notice of the setups once, with the methods that it concerns."""
    from undrift.experiment.engines import expected_seconds
    from undrift.experiment.setup import prepare

    estimates, notices, last = [], dict[str, dict[str, None]](), ""
    for number, task in enumerate(tasks):
        try:
            if (key := federations.key(task.settings)) != last:
                federations.keep_only(tasks[number:])
                last = key
            setup = prepare(from_keywords({**task.settings, "method": task.method}), federations.of(task.settings))
        except BadRequest as error:
            if preset is None:
                raise
            raise BadRequest(f"{preset}, {task.label}: {error}") from None
        for sentence in setup.notices:
            notices.setdefault(sentence, {})[task.method_label] = None
        try:
            seconds = expected_seconds(setup)
        except Exception:  # the user's model or loss fails; it fails again in a client, with an error that names it
            seconds = 0.0
        weighting = setup.method.one("weighting").name
        estimates.append(Estimate(seconds, setup.plan.private is None, weighting, *fitting(setup)))
    everybody = list(dict.fromkeys(task.method_label for task in tasks))
    for sentence, concerned in notices.items():
        whose = "" if list(concerned) == everybody and len(everybody) > 1 else f"{some(list(concerned))}: "
        callback.on_message(f"{whose}{sentence}")
    return estimates


def weighting_note(weightings: Mapping[str, str]) -> str:
    """One sentence if the methods of a table weigh clients differently; empty otherwise. `weightings` are by label."""
    groups: dict[str, list[str]] = {}
    for label, weighting in weightings.items():
        groups.setdefault(weighting, []).append(label)
    if len(groups) < 2:
        return ""
    listed = "; ".join(f"{weighting} in {some(labels)}" for weighting, labels in groups.items())
    return f"clients are weighed differently: {listed}. Part of a difference can be due to the weights; NAME@size sets them"
