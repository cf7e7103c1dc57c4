"""The shipped tasks: what a network's output means, its loss and its metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from undrift.contract.task import Task
from undrift.core import text
from undrift.core.errors import BadRequest
from undrift.core.words import shown
from undrift.tasks.classification import Classification as classification
from undrift.tasks.multilabel import Multilabel as multilabel
from undrift.tasks.regression import regression
from undrift.tasks.segmentation import Segmentation as segmentation
from undrift.tasks.sequence import Sequence as sequence

__all__ = ["classification", "multilabel", "regression", "segmentation", "sequence"]

TASKS: dict[str, Callable[..., Task]] = {
    "classification": classification, "sequence": sequence, "regression": regression, "multilabel": multilabel,
    "segmentation": segmentation,
}  # fmt: skip


def read(given: Any) -> Task:
    """The task of a text (`regression(loss=huber)`, `mine:task`), or a task as it is; classification for None."""
    if given is None:
        return classification()
    task = text.build("task", given, TASKS) if isinstance(given, str) else given
    if not isinstance(task, Task):
        raise BadRequest(
            f"a task must be a text such as regression(loss=huber), or an object of a class that derives from "
            f"undrift.contract.task.Task, not {shown(given)}"
        )
    return task
