"""Where a claim stands: what is printed, which results count, and the command for what was not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from undrift.papers import papers, standing

RESULTS = Path(__file__).parents[2] / "docs" / "results"
TABLE = {
    "title": "t", "source": "s", "options": {"data": "digits", "rounds": 10}, "quick": {"minutes": 3}, "mid": {"minutes": 14},
    "rows": [{"name": name, "method": "fedavg"} for name in ("A", "B")],
    "columns": [{"name": "x"}, {"name": "y"}],
    "values": [{"name": "G"}, {"name": "loss", "metric": "loss", "factor": 1.0}],
    "published": {"A": [["84.4 (1.7)", "0.30"], ["70.0 ± 0.1", "0.5"]], "B": [["80.0", "0.25"], ["71.0", "lost"]]},
    "claims": [{"sentence": "A is ahead", "above": ["A", "B"]},
               {"sentence": "A has the lower loss", "below": ["A", "B"], "value": "loss"},
               {"sentence": "Control: they are near", "near": ["A", "B"], "within": 2.0}],
}  # fmt: skip


@pytest.fixture
def preset():
    return papers.parse("a/b", TABLE)


def write(folder, name, scale, levels, seeds=3):
    """A results file: one line per row, column and seed, whose curves are constant."""
    lines = [
        {"preset": "a/b", "scale": scale, "row": row, "column": column, "seed": seed, "rounds": 10, "seconds": 1.0,
         "method": "fedavg", "values": {}, "curve": [level + seed * (row == "A") / 1000] * 10}
        for (row, column), level in levels.items() for seed in range(seeds)
    ]  # fmt: skip
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


ABOVE = {("A", "x"): 0.9, ("B", "x"): 0.8, ("A", "y"): 0.9, ("B", "y"): 0.8}
BELOW = {key: 1.7 - level for key, level in ABOVE.items()}


def test_printed_differences_by_hand(preset, tmp_path):
    ahead, loss, near = standing.standings(tmp_path, [preset])
    assert ahead.printed == "−1.0 to +4.4, as claimed in 1 of 2"
    assert loss.printed == "+0.0500"  # the other is lost
    assert near.printed == "−1.0 to +4.4, as claimed in 1 of 2"  # 4.4 is not within 2
    assert near.is_control
    assert not ahead.is_control


def test_a_claim_without_runs_is_open_and_says_what_would_run_it(preset, tmp_path):
    one = standing.standings(tmp_path, [preset])[0]
    assert (one.verdict, one.ours) == ("open", "—")
    assert one.command == "not run: `undrift paper run a/b --scale mid`, 14 min"
    (tmp_path / "other.jsonl").write_text('{"method": "fedavg"}\n')  # of another command
    assert standing.standings(tmp_path, [preset])[0].found is None


def test_the_largest_scale_with_several_seeds_counts_whatever_comes_out(preset, tmp_path):
    write(tmp_path, "quick", "quick", ABOVE)
    one = standing.standings(tmp_path, [preset])[0]
    assert (one.verdict, one.scale, one.command) == ("true", "quick", "`docs/results/run quick`")
    # deviation 0.1, three seeds: ±6.205 · 0.1/√3 at the level 0.975 and, once that is decided (Holm), ±4.303 · 0.1/√3
    assert one.ours == "x +10.1 [+9.7, +10.5]; y +10.1 [+9.9, +10.3]"
    write(tmp_path, "paper", "paper", BELOW, seeds=1)
    assert standing.standings(tmp_path, [preset])[0].scale == "quick"  # a hint does not replace an interval
    write(tmp_path, "mid", "mid", BELOW)
    assert [one.verdict for one in standing.standings(tmp_path, [preset])] == ["false", "open", "false"]


def test_comparisons_that_are_missing_are_counted(preset, tmp_path):
    write(tmp_path, "quick", "quick", {key: level for key, level in ABOVE.items() if key[1] == "x"})
    one = standing.standings(tmp_path, [preset])[0]
    assert one.verdict == "open"
    assert one.ours.endswith("; 1 not run")


def test_a_preset_that_shares_runs_stands_on_them():
    every = standing.standings(RESULTS, [papers.load("fednolowe/figure3"), papers.load("fednolowe/figure1")])
    assert {one.file for one in every} <= {"fednolowe-table3", "fednolowe-table3-quick", ""}
    assert any(one.found for one in every)
