"""benchmarks/lockstep.py: the page is what was kept, checkouts take turns, ratios are paired."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "lockstep.py"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("lockstep_benchmark", SCRIPT)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_page_is_what_was_kept(benchmark):
    kept, page = json.loads(benchmark.RESULTS.read_text()), benchmark.PAGE.read_text()
    for name, text in (("bench", benchmark.bench_table(kept)), ("commands", benchmark.commands_table(kept))):
        begin, end = benchmark.MARKS[name]
        assert f"{begin}\n{text}{end}" in page


def test_checkouts_take_turns_and_ratios_are_paired(benchmark, monkeypatch, tmp_path):
    old, new, calls, seconds = tmp_path / "old", tmp_path / "new", [], iter([10.0, 4.0, 3.0, 6.0, 20.0, 8.0])

    def timed(checkout, arguments):
        calls.append(checkout.name)
        took = next(seconds)
        return {"training": took / 2, "command": took}

    monkeypatch.setattr(benchmark, "timed", timed)
    found = benchmark.in_turns(old, new, "demo", 3)
    assert calls == ["old", "new", "new", "old", "old", "new"]
    about = {"command": "c", "machine": "m", "date": "d", "load": "0", "old": "a", "new": "b"}
    large = [{"work": "a", "pairs": 10, "wall": {"ratio": 1.0, "interval": (0.99, 1.01)}}]
    table = benchmark.commands_table({**about, "commands": {"demo": found}, "before_after": large})
    # Pairs: 4/10, 3/6, 8/20. The median of old is 10, of new 4. Three pairs have no interval.
    assert "| demo: command | 10.0 s | 4.0 s | 0.400 [—] | 3 |" in table
    assert "| demo: training | 5.0 s | 2.0 s | 0.400 [—] | 3 |" in table
    assert "| rounds of (a), one core | | | 1.000 [0.990, 1.010] | 10 |" in table


def test_every_measurement_of_the_rounds_is_kept_and_shown(benchmark, monkeypatch, tmp_path):
    def measurement(revision, ratio, **more):
        work = {
            "name": "c",
            "bare": 1.0,
            "seconds": ratio,
            "ratio": ratio,
            "spread": 0.1,
            "ratio_evaluated": 1.0,
            "pairs": 9,
        }
        return {
            "command": "b",
            "machine": "m",
            "date": "d",
            "load": "0",
            "data": "x",
            "new": revision,
            "works": [work],
            **more,
        }

    results, page = tmp_path / "kept.json", tmp_path / "page.md"
    results.write_text(json.dumps({"bench": measurement("old", 0.4), "commands": {}, "before_after": [], "old": "a",
                                   "new": "b", "command": "c", "machine": "m", "date": "d", "load": "0"}))  # fmt: skip
    page.write_text("".join(f"{begin}\n{end}\n" for begin, end in benchmark.MARKS.values()))
    monkeypatch.setattr(benchmark, "RESULTS", results)
    monkeypatch.setattr(benchmark, "PAGE", page)
    monkeypatch.setattr("sys.argv", ["lockstep.py", "--bench", str(tmp_path)])
    to_come = [measurement("newer", 0.5, time="05:00"), measurement("newest", 0.3, time="05:00")]
    monkeypatch.setattr(benchmark, "rounds", lambda *_: to_come.pop(0))
    benchmark.main()
    benchmark.main()
    assert "| c | 1.000 | 0.300 | 0.300 |" in page.read_text()
    rows = ["| d 05:00 | newest | 0 | 0.300 |", "| d 05:00 | newer | 0 | 0.500 |", "| d | old | 0 | 0.400 |"]
    assert "\n".join(rows) in page.read_text()


def test_the_table_of_a_comparison_is_what_was_kept():
    spec = importlib.util.spec_from_file_location("compare_benchmark", SCRIPT.parent / "compare.py")
    compare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compare)
    kept = json.loads(compare.RESULTS.read_text())
    assert f"{compare.BEGIN}\n{compare.table(kept)}{compare.END}" in compare.PAGE.read_text()
    one = {**kept, "methods": ["a", "b"], "times": [{"alone": [3.0, 5.0], "together": 2.0, "cores": 2}]}
    assert "| 3.0 s | 5.0 s | 4.0 s | 2.0 s | 0.500 |" in compare.table(one)
