"""The rules say what the kept results say, and name methods and parameters that exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import undrift as ud
from undrift.advice.findings import AXES
from undrift.advice.rules import COMPOSITIONS, PARAMETERS, RULES, Kept
from undrift.methods.describe import describe
from undrift.methods.published import PUBLISHED

RESULTS = Path(__file__).parents[2] / "docs" / "results"
KEPT = [rule.kept for rule in RULES if rule.kept is not None] + list(COMPOSITIONS.values())


def by_seed(kept: Kept, row: dict) -> dict[int, float]:
    """The measure of a row's runs, in percent. Of two results of one seed the longer counts."""
    found: dict[int, tuple[int, float]] = {}
    for line in (RESULTS / f"{kept.file}.jsonl").read_text().splitlines():
        run = json.loads(line)
        if all(run.get(key) == value for key, value in {**kept.where, **row}.items()):
            value = run["values"][kept.measure][0] if kept.measure in run.get("values", {}) else run[kept.measure]
            found[run["seed"]] = max(found.get(run["seed"], (0, 0.0)), (run["rounds"], 100 * value))
    return {seed: value for seed, (_, value) in found.items()}


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: f"{kept.file}-{'-'.join(kept.this.values())}")
def test_the_evidence_is_what_the_file_says(kept):
    this, control = by_seed(kept, kept.this), by_seed(kept, kept.control)
    seeds = sorted(set(this) & set(control))
    assert len(seeds) == kept.seeds
    assert sum(this[seed] - control[seed] for seed in seeds) / len(seeds) == pytest.approx(kept.points, abs=0.051)


def test_the_text_of_the_evidence_names_file_number_and_seeds():
    scaffold = next(rule for rule in RULES if rule.method == "scaffold")
    assert scaffold.evidence == (
        "+2.7 points over FedAvg (docs/results/fedbss-table1-quick.jsonl: column Dir 0.1, 1 seed)"
    )


def test_every_axis_has_a_remedy():
    assert {rule.axis for rule in RULES} == {"plain", *AXES, "personal"}


def test_remedies_are_published_and_compositions_can_be_composed():
    assert {rule.method for rule in RULES} <= set(PUBLISHED)
    for text in COMPOSITIONS:
        ud.method(text)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_main_parameter_exists_and_takes_its_values(name):
    parameter, values = PARAMETERS[name]
    assert parameter in describe(name)["parameters"]
    for value in values:
        ud.method(f"{name}({parameter}={value})")
