"""benchmarks/quick_presets.py: what it keeps of two checkouts, and that its page is what it kept."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "quick_presets.py"


@pytest.fixture
def benchmark():
    spec = importlib.util.spec_from_file_location("quick_presets", SCRIPT)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_page_is_what_was_kept(benchmark):
    kept = json.loads(benchmark.RESULTS.read_text())
    assert f"{benchmark.BEGIN}\n{benchmark.table(kept)}{benchmark.END}" in benchmark.PAGE.read_text()


def test_checkouts_take_turns_on_what_both_have(benchmark, monkeypatch, tmp_path):
    old, new, calls = tmp_path / "old", tmp_path / "new", []
    known = {
        old: {"a": [["r", "gone"], ["c"]], "b": [["gone"], ["c"]], "d": [["r"], ["c"]], "e": [["r"], ["c"]]},
        new: {"a": [["r", "more"], ["c"]], "b": [["r"], ["c"]], "d": [["r"], ["c"]], "e": [["r"], ["c"]]},
    }
    monkeypatch.setattr(benchmark, "presets", lambda checkout, names: known[checkout])

    def seconds(checkout, name, rounds, rows, columns):
        calls.append((name, checkout.name, rounds, rows, columns))
        return 4.0 if checkout == old else 1.0

    monkeypatch.setattr(benchmark, "seconds", seconds)
    kept = benchmark.measured(old, new, 15, [])
    assert kept["presets"] == [{"preset": name, "cells": 1, "old": 4.0, "new": 1.0} for name in "ade"]
    turns = ["old", "new", "old", "new", "new", "old"]  # b has its turn, though nothing of it is in both
    assert [call[:2] for call in calls] == list(zip("aaddee", turns))
    assert calls[0][2:] == (15, ["r"], ["c"])
    assert {"command", "machine", "date", "load", "old", "new"} < set(kept)
    assert "| **all 3** | 12.0 | 3.0 | 0.25 |" in benchmark.table(kept)


def test_more_adds_what_is_not_kept_with_all_its_cells(benchmark, monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path / "kept.json")
    kept = {"presets": [{"preset": "a", "cells": 4, "new": 1.0}, {"preset": "b", "cells": 2, "new": 1.0}], "more": []}
    benchmark.RESULTS.write_text(json.dumps(kept))
    answer = SimpleNamespace(returncode=0, stdout=json.dumps({"a": 4, "b": 3, "c": 1}))
    monkeypatch.setattr(benchmark, "python", lambda checkout, *arguments: answer)
    measured = []
    monkeypatch.setattr(benchmark, "seconds", lambda checkout, name, rounds: measured.append(name) or 2.0)
    for _ in range(2):  # the second time there is nothing left
        benchmark.add_more(tmp_path)
    assert measured == ["b", "c"]
    found = json.loads(benchmark.RESULTS.read_text())["more"]
    assert [(one["preset"], one["cells"], one["new"]) for one in found] == [("b", 3, 2.0), ("c", 1, 2.0)]
