"""docs/watch.md shows the kept results of `benchmarks/watch.py`, and they are within the limits that the page names."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_kept_results_and_they_are_within_their_limits(monkeypatch):
    monkeypatch.setattr(sys, "modules", dict(sys.modules))  # the benchmark puts parts of the tests there
    spec = importlib.util.spec_from_file_location("watch_benchmark", ROOT / "benchmarks" / "watch.py")
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    kept = json.loads(benchmark.RESULTS.read_text())
    assert f"{benchmark.BEGIN}\n{benchmark.table(kept)}\n{benchmark.END}" in (ROOT / "docs" / "watch.md").read_text()
    found = {name: one["found"] for name, one in kept.items()}
    assert max(found["delay"]["longest"], found["paint"]["longest"]) < 2
    assert found["cost"]["megabytes"] < 100
    assert found["cost"]["share"] < 0.02
