"""Results are what they were, bit by bit: this checkout against the list of this kind of processor (see keep.py)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

spec = importlib.util.spec_from_file_location("keep", Path(__file__).with_name("keep.py"))
assert spec is not None
assert spec.loader is not None
keep = importlib.util.module_from_spec(spec)
spec.loader.exec_module(keep)

# At least one of every axis, and what they share; the others are as fast each, but too many for the quick suite.
QUICK = (
    "fedavg-30", "fedbn-6-batchnorm", "flood-6", "fedbss-6", "scaffold-6", "feddyn-6", "fliu-6", "ditto-6", "fedrep-6",
    "fedper-6", "bound-6", "aflama-6", "fednova-6", "fedcda-6", "krum-6", "fedmr-6", "fedadam-6",
)  # fmt: skip
KIND = keep.kind()
KEPT = keep.read(KIND)
WHY_NOT = keep.why_not(KEPT, KIND)


def rows() -> list[Any]:
    if WHY_NOT:
        return [pytest.param(None, id=KIND)]
    named = [(keep.name_of(entry), entry) for entry in KEPT["entries"]]
    return [pytest.param(entry, id=name, marks=[] if name in QUICK else pytest.mark.slow) for name, entry in named]


@pytest.mark.parametrize("entry", rows())
def test_a_result_is_what_it_was(entry):
    if entry is None:
        pytest.skip(WHY_NOT)
    wrote = f"the list is of {KEPT['processor']}, {KEPT['commit']}: {KEPT['command']}"
    assert keep.hashes(entry) == {name: entry[name] for name in keep.HASHES}, wrote


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("*.json")), ids=lambda path: path.stem)
def test_a_list_is_whole_and_has_all_that_is_quick(path):
    kept = keep.read(path.stem)
    names = [keep.name_of(entry) for entry in kept["entries"]]
    assert kept["kind"] == path.stem
    assert kept["common"] == keep.COMMON
    assert len(set(names)) == len(names)
    assert set(QUICK) <= set(names)


def test_another_kind_of_processor_is_told_what_to_do():
    said = keep.why_not(None, "pdp11-DEC-DEFAULT")
    assert "there is no list of hashes for pdp11-DEC-DEFAULT" in said
    assert "keep.py --write" in said
    for path in Path(__file__).parent.glob("*.json"):
        assert keep.read(path.stem)["commit"] in said


def test_a_list_of_another_torch_is_not_compared():
    assert "a list of torch 1.0, not " in keep.why_not({"torch": "1.0"}, KIND)
    assert keep.why_not({"torch": keep.torch.__version__}, KIND) == ""
