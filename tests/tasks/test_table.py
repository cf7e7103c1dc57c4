"""Methods × tasks: every cell runs and improves the headline, or is refused with its sentence."""

from __future__ import annotations

import pytest

from undrift.methods.evidence import tasks
from undrift.methods.published import PUBLISHED
from undrift.testing.task_table import PROBLEMS, outcome, table

QUICK = ("fedavg", "scaffold", "flood", "bound", "fedlc", "fliu")
REFUSALS = ("one class per sample", "logits of classes", "right or wrong", "one vector per sample", "chain of layers")


def test_the_kept_table_has_every_method_and_task():
    assert set(tasks()) == set(PUBLISHED)
    assert all(list(row) == list(PROBLEMS) for row in tasks().values())


@pytest.mark.parametrize("task", PROBLEMS)
def test_at_least_35_methods_run_on_every_task(task):
    assert sum(row[task].startswith("yes") for row in tasks().values()) >= 35


def test_a_refusal_says_what_the_task_lacks():
    sentences = {cell for row in tasks().values() for cell in row.values() if not cell.startswith("yes")}
    assert sentences
    assert [one for one in sentences if not any(word in one for word in REFUSALS) or "\n" in one] == []


def test_every_method_runs_on_classification():
    assert {name for name, row in tasks().items() if not row["classification"].startswith("yes")} == set()


@pytest.mark.parametrize("method", QUICK)
def test_some_rows_are_as_kept(method):
    assert table([method])[method] == tasks()[method]


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in PUBLISHED if name not in QUICK])
def test_all_rows_are_as_kept(method):
    assert {task: outcome(method, task) for task in PROBLEMS} == tasks()[method]
