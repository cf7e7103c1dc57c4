"""Evaluation on real data sets."""

from __future__ import annotations

import pytest

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.methods import scores

pytestmark = pytest.mark.data
QUICK = {"partition": "resample(300)", "clients": 4, "rounds": 2, "cohort": 1.0, "epochs": 1, "out": False}


def test_a_trained_model_tells_another_data_set_from_its_own():
    result = ud.run("fedavg", data="fashion-mnist", ood="mnist", **QUICK)
    found = dict(result.rows("SELECT metric, value FROM metrics WHERE data='ood' AND round=1"))
    assert len(found) == 2 * len(scores.SCORES)  # AUROC and FPR at 95 %
    assert all(0 <= value <= 1 for value in found.values())
    assert max(value for metric, value in found.items() if metric.startswith("auroc:")) > 0.6


def test_a_set_that_does_not_fit_is_refused_with_those_that_do():
    with pytest.raises(BadRequest, match=r"fashion-mnist.* have that shape"):
        ud.run("fedavg", data="mnist", ood="cifar-10", **QUICK)


def test_the_table_of_the_papers_question_on_real_domains():
    result = ud.run("fedavg", data="office-caltech10-32", **{**QUICK, "partition": "by_domain", "rounds": 1})
    found = result.summary["stages"]["G"]["domains"]
    assert len(found) == 4
    assert all(0 <= value <= 1 for value in found.values())
