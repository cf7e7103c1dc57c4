"""A dry run sets up every task before the first one starts."""

from __future__ import annotations

import pytest

from undrift.core.errors import BadRequest
from undrift.study.dry_run import dry_run
from undrift.study.tasks import Federations, StudyCallback, Task

SMALL = {"clients": 4, "rounds": 2, "model": "mlp(8)", "seed": 0, "data_seed": 0}


class Messages(StudyCallback):
    def __init__(self):
        self.sentences = []

    def on_message(self, sentence):
        self.sentences.append(sentence)


def task(method, **options):
    row = {"row": method, "column": "x", "seed": 0}
    return Task(method, method, {**SMALL, **options}, row)


def test_it_estimates_the_time_and_reports_a_notice_of_a_method_once():
    messages, federations = Messages(), Federations()
    tasks = [task("flood@uniform"), task("flood@uniform", lr=0.1), task("fedper", clients=5)]
    estimates = dry_run(tasks, federations, messages)
    assert all(estimate.seconds > 0 for estimate in estimates)
    assert [estimate.has_global_model for estimate in estimates] == [True, True, False]
    assert sum("gives way" in sentence for sentence in messages.sentences) == 1
    assert len(federations.made) == 1  # the one of the last task


def test_a_bad_task_of_a_preset_is_refused_with_its_place():
    with pytest.raises(BadRequest, match=r"^a/b, fedavg, x: "):
        dry_run([task("fedavg", batch=-1)], Federations(), StudyCallback(), "a/b")
