"""The live page of a comparison or a preset: colours, names, every seed, and intervals as they shrink."""

from __future__ import annotations

import importlib.util
import math
import os
from pathlib import Path

import pytest

from undrift.live.index import Index
from undrift.live.runs_view import first_choice, long_name
from undrift.live.study_view import about, all_seeds, claim_figures
from undrift.papers import papers
from undrift.report.differences import shrinking

spec = importlib.util.spec_from_file_location("made", Path(__file__).with_name("made.py"))
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)


@pytest.fixture
def index(tmp_path):
    for place, method in enumerate(("fedavg", "fliu", "fedavg")):
        made.made_run(tmp_path / "c" / f"{place:02d}-{method}-seed{place}", method, seed=place)
    made.made_run(tmp_path / "alone", "fliu", done=4)
    made.made_run(tmp_path / "never", done=0)
    found = Index([tmp_path])
    found.poll()
    return found


def test_a_label_has_the_colour_of_its_method_and_its_own_where_the_method_has_two(index):
    runs = list(index.runs.values())
    fedavg, fliu = (index.number(name) for name in ("fedavg", "fliu"))
    by_method = {"FedAvg": [runs[1], runs[3]], "FLIU": [runs[2]]}
    assert index.colours(by_method) == {"FedAvg": fedavg, "FLIU": fliu}
    shared = index.colours({"lr 0.1": [runs[1]], "lr 0.2": [runs[3]], "FLIU": [runs[0]]})
    assert shared["FLIU"] == fliu
    assert len({shared["lr 0.1"], shared["lr 0.2"], fedavg, fliu}) == 4
    assert index.colours({"not started": []}) == {"not started": index.number("not started")}


def test_a_folder_that_names_its_method_is_name_enough(index):
    assert long_name(index.runs["c/00-fedavg-seed0"]) == "00-fedavg-seed0"
    assert long_name(index.runs["alone"]) == "fliu (alone)"


def test_without_a_choice_the_runs_that_ended_last_are_drawn(index, monkeypatch):
    monkeypatch.setattr("undrift.live.runs_view.DRAWN_FIRST", 2)
    for key, when in (("c/00-fedavg-seed0", 3), ("alone", 2), ("c/01-fliu-seed1", 1), ("c/02-fedavg-seed2", 0)):
        for name in ("run.toml", "run.sqlite"):
            os.utime(index.roots[""] / key / name, (when, when))
    index.poll()
    assert [row.key for row in first_choice(index, list(index.runs.values()))] == ["alone", "c/00-fedavg-seed0"]


def test_a_cell_of_a_preset_has_all_its_seeds_in_order(index):
    rows = [index.runs["c/02-fedavg-seed2"], index.runs["c/00-fedavg-seed0"]]
    markup = all_seeds(rows)[1]
    assert markup.count("✓ 59.00") == 2
    assert markup.index("seed0") < markup.index("seed2")
    assert all_seeds([]) == "—"


def test_the_interval_of_a_claim_shrinks_as_seeds_are_added():
    """ASW − FedAvg of 1, 3 and 2 points: after two seeds 2 ± 12.706, after three 2 ± 4.303 / √3."""
    preset = papers.load("flood/table5")
    column, value = preset.columns[0].name, preset.values[0].name
    gaps = [0.01, 0.03, 0.02]
    rows = [
        {"row": row, "column": column, "seed": seed, "rounds": 10, "values": {value: [0.5 + gap * (row == "+ASW"), 0.0]}}
        for seed, gap in enumerate(gaps) for row in ("FedAvg", "+ASW")
    ]  # fmt: skip
    (section,) = claim_figures(preset, rows)
    _, sentence, figure = section[1]
    assert sentence == "ASW alone improves on FedAvg"
    (line,) = figure.data
    assert list(line.y) == pytest.approx([2, 2])
    assert list(line.error_y.array) == pytest.approx([12.7062, 4.30265 / 3**0.5], rel=1e-5)
    assert list(line.error_y.arrayminus) == pytest.approx(list(line.error_y.array))
    assert claim_figures(preset, rows[:2]) == []


def test_the_first_interval_does_not_hide_the_last_one():
    """±300 points after two seeds, then −4 … 8: the figure goes half of those twelve further."""
    figure = shrinking([("a − b", 0, [(2, 2.0, -298.0, 302.0), (3, 2.0, -4.0, 8.0)])])
    assert list(figure.layout.yaxis.range) == [-10, 14]
    assert shrinking([("a − b", 0, [(1, 2.0, -math.inf, math.inf)])]).layout.yaxis.range is None


def test_a_comparison_without_a_run_says_so(index):
    study = index.roots[""] / "begun"
    study.mkdir()
    (study / "compare.toml").write_text('seeds = [[0, 0]]\n[[methods]]\nmethod = "fedavg"\n')
    index.poll()
    assert about(index.studies["begun"]).startswith("… starting: no run has started yet.")
