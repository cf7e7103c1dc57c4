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
IN_LOCKSTEP = tuple(f"{name}-6-lockstep" for name in ("fedavg", "scaffold", "flood", "fedlc"))
KIND = keep.kind()


def rows() -> list[Any]:
    """Every entry of the two lists of this kind of processor: one by one, and in lock-step."""
    found = []
    for kind in (KIND, keep.kind(lockstep=True)):
        kept = keep.read(kind)
        if why := keep.why_not(kept, kind):
            found.append(pytest.param(why, None, None, id=kind))
            continue
        wrote = f"the list is of {kept['processor']}, {kept['commit']}: {kept['command']}"
        for entry in kept["entries"]:
            name = keep.name_of(entry)
            quick = name in QUICK or name in IN_LOCKSTEP
            found.append(pytest.param("", entry, wrote, id=name, marks=[] if quick else pytest.mark.slow))
    return found


@pytest.mark.parametrize(("why_not", "entry", "wrote"), rows())
def test_a_result_is_what_it_was(why_not, entry, wrote):
    if entry is None:
        pytest.skip(why_not)
    assert keep.hashes(entry) == {name: entry[name] for name in keep.HASHES}, wrote


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("*.json")), ids=lambda path: path.stem)
def test_a_list_is_whole_and_has_all_that_is_quick(path):
    kept = keep.read(path.stem)
    names = [keep.name_of(entry) for entry in kept["entries"]]
    assert kept["kind"] == path.stem
    assert kept["common"] == keep.COMMON
    assert len(set(names)) == len(names)
    assert set(IN_LOCKSTEP if kept["kind"].endswith("-lockstep") else QUICK) <= set(names)


def test_another_kind_of_processor_is_told_what_to_do():
    said = keep.why_not(None, "pdp11-DEC-DEFAULT")
    assert "there is no list of hashes for pdp11-DEC-DEFAULT" in said
    assert "keep.py --write" in said
    for path in Path(__file__).parent.glob("*.json"):
        assert keep.read(path.stem)["commit"] in said


def test_a_list_of_another_torch_is_not_compared():
    assert "a list of torch 1.0, not " in keep.why_not({"torch": "1.0"}, KIND)
    assert keep.why_not({"torch": keep.torch.__version__}, KIND) == ""
