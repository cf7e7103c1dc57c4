"""benchmarks/before_after.py: its statistics by hand; it runs two checkouts in turn and reports the slower one."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "before_after.py"
spec = importlib.util.spec_from_file_location("before_after", SCRIPT)
assert spec is not None
assert spec.loader is not None
before_after = importlib.util.module_from_spec(spec)
spec.loader.exec_module(before_after)

# A fake checkout: `run` computes for a while and always has the same result.
STAND_IN = """
import time

class Federation:
    def __init__(self, name, train, test, parts, labels, slices):
        assert len(parts) == len(slices) == 100
        assert sum(map(len, parts)) == len(train[1])

class Result:
    summary = {"model_sha256": "f00"}

def run(method, federation, rounds, **options):
    print("what a run prints is not an answer")
    end = time.process_time() + rounds * SECONDS
    while time.process_time() < end:
        pass
    return Result()
"""


@pytest.mark.parametrize(
    ("count", "k"),
    [
        (0, 0),
        (5, 0),  # P(X < 1) = 1/32 = 3.1 %: even the smallest and the largest are not enough
        (6, 1),  # 1/64 = 1.6 %
        (8, 1),  # P(X < 2) = 9/256 = 3.5 %
        (9, 2),  # 10/512 = 2.0 %
        (10, 2),  # 11/1024 = 1.1 %; P(X < 3) = 56/1024 = 5.5 %
        (12, 3),  # 79/4096 = 1.9 %
        (20, 6),  # 21,700/1,048,576 = 2.1 %; P(X < 7) = 60,460/1,048,576 = 5.8 %
    ],
)
def test_the_rank_of_the_interval_by_hand(count, k):
    assert before_after.rank(count) == k


def test_the_interval_is_the_kth_smallest_and_the_kth_largest():
    ratios = [1.05, 0.97, 1.01, 1.00, 0.99, 1.03, 0.98, 1.02, 1.04]
    assert before_after.interval(ratios) == (0.98, 1.04)
    assert before_after.interval(ratios[:5]) is None


@pytest.mark.parametrize(
    ("found", "conclusion"),
    [
        (None, "too few pairs"),
        ((0.99, 1.01), "below 1.02"),
        ((1.01, 1.03), "includes 1.02"),
        ((1.02, 1.03), "includes 1.02"),
        ((1.021, 1.03), "above 1.02"),
    ],
)
def test_an_interval_is_compared_with_two_percent(found, conclusion):
    assert before_after.conclusion(found) == conclusion


def pairs(ratios):
    found = before_after.Pairs("a", "wall")
    for ratio in ratios:
        found.old.append({"wall": 2.0, "cpu": 1.0, "model_sha256": "f00"})
        found.new.append({"wall": 2.0 * ratio, "cpu": 1.0, "model_sha256": "f00"})
    return found


def test_a_workload_is_finished_when_its_interval_is_narrow_after_an_even_number_of_pairs():
    assert pairs([1.0, 1.01] * 5).finished
    assert not pairs([1.0, 1.01] * 4).finished  # fewer than ten
    assert not pairs([1.0] * 11).finished  # one order more often than the other
    assert not pairs([0.97, 1.03] * 5).finished  # ±3 %


def test_different_results_are_reported():
    found = pairs([1.0, 1.0])
    assert found.report()["same_results"]
    found.new[1]["model_sha256"] = "bad"
    assert not found.report()["same_results"]
    assert "DIFFER" in before_after.table([found.report()], "wall")


def measured(folder, old, new, *more):
    command = [sys.executable, str(SCRIPT), str(old), str(new), "--works", "a", "--samples", "3000", "--clock", "cpu"]
    done = subprocess.run([*command, *more, "--json", str(folder / "found.json")], capture_output=True, text=True)
    assert (folder / "found.json").exists(), done.stderr
    return done, json.loads((folder / "found.json").read_text())["works"][0]


@pytest.mark.slow
def test_a_slower_checkout_is_detected(tmp_path):
    for name, seconds in (("old", 0.01), ("new", 0.02)):
        (tmp_path / name / "src" / "undrift").mkdir(parents=True)
        (tmp_path / name / "src" / "undrift" / "__init__.py").write_text(f"SECONDS = {seconds}\n{STAND_IN}")
    done, found = measured(tmp_path, tmp_path / "old", tmp_path / "new", "--seconds", "0.03", "--minutes", "1")
    assert found["cpu"]["ratio"] == pytest.approx(2.0, rel=0.2)
    assert found["rounds"] in (2, 3, 4)  # 3, if nothing disturbs it
    assert found["verdict"] == "above 1.02"
    assert found["pairs"] >= 10
    assert done.returncode == 1


@pytest.mark.slow
def test_a_checkout_beside_itself_has_the_same_results(tmp_path):
    done, found = measured(tmp_path, ROOT, ROOT, "--seconds", "0.2", "--minutes", "0.1")
    assert found["pairs"] >= 1, done.stderr
    assert found["same_results"]
    assert "(a) pair 1: old" in done.stderr
