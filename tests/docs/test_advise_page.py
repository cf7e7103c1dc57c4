"""docs/advise.md says what docs/results/diagnosis.jsonl holds, and its thresholds are those of the code."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from undrift.advice import diagnosis

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def made():
    spec = importlib.util.spec_from_file_location("make_advise", DOCS / "make_advise.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_kept_results(made):
    assert (DOCS / "advise.md").read_text() == made.page(), "out of date; run python docs/make_advise.py"


def test_the_kept_results_are_whole(made):
    """Two data sets, four partitions and three transforms, every cell with every seed."""
    noise, skew = made.kept("wrong labels"), made.kept("feature skew")
    for lines, cells in ((noise, 4 * 9), (skew, 3 * 5)):
        assert {line["data"] for line in lines} == {"digits", "mnist"}
        for own in made.groups(lines, "data").values():
            assert len(own) == cells * len({line["seed"] for line in own})
    assert made.error({"found_wrong_labels": None, "wrong_labels": 0.2}) == 20


def test_thresholds_are_those_of_the_code():
    page = (DOCS / "advise.md").read_text()
    assert f"| {diagnosis.LABEL_SKEW} above chance |" in page
    assert f"Gini coefficient of the sizes | {diagnosis.QUANTITY_SKEW} |" in page
    assert f"2·AUC − 1 | {diagnosis.FEATURE_SKEW}, and" in page
    assert f"where these are sure | {100 * diagnosis.WRONG_LABELS:.0f} % |" in page
    assert f"| {diagnosis.DRIFT} times |" in page
