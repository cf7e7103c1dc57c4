"""Figures of presets: a value over a parameter, with its interval over seeds."""

from __future__ import annotations

import pytest

from undrift.papers import figures, papers

TABLE = {
    "title": "t", "source": "s", "options": {"data": "digits", "rounds": 10}, "quick": {},
    "rows": [{"name": name, "method": "fedavg"} for name in ("A", "B", "C")],
    "columns": [{"name": "x"}, {"name": "y"}],
    "values": [{"name": "G"}],
    "figures": [{"title": "panel", "x": "q", "lines": [
        {"name": "ours", "points": [[0.1, "A"], [0.5, "B"], [0.9, "B", "y"]]},
        {"name": "theirs", "level": "C"},
    ]}],
}  # fmt: skip


def result(row, seed, number, column="x"):
    return {"row": row, "column": column, "seed": seed, "values": {"G": [number, 0.0]}}


def test_points_are_means_over_seeds_with_their_intervals_and_a_level_goes_across():
    preset = papers.parse("a/b", TABLE)
    rows = [
        result("A", 0, 0.5),
        result("A", 1, 0.7),
        result("B", 0, 0.8),
        result("C", 0, 0.4),
        result("B", 0, 0.9, "y"),
    ]
    ((title, fig),) = figures.drawn(preset, rows)
    ours, theirs = fig.data
    assert title == "panel"
    assert list(ours.x) == [0.1, 0.5, 0.9]
    assert list(ours.y) == pytest.approx([60.0, 80.0, 90.0])
    # two seeds: t(0.975, 1) = 12.706, s/√n = 14.142/1.4142 = 10
    assert list(ours.error_y.array) == pytest.approx([127.06, 0.0, 0.0], abs=0.01)
    assert list(theirs.x) == [0.1, 0.9]
    assert list(theirs.y) == pytest.approx([40.0, 40.0])


def test_a_point_that_was_not_run_is_left_out_and_a_panel_without_results_too():
    preset = papers.parse("a/b", TABLE)
    ((_, fig),) = figures.drawn(preset, [result("A", 0, 0.5)])
    assert [list(line.x) for line in fig.data] == [[0.1]]
    assert figures.drawn(preset, [{"row": "A", "column": "x", "seed": 0, "failed": "why"}]) == []


def test_names_that_do_not_exist_are_refused():
    line = {"name": "ours", "points": [[0.1, "D"]]}
    with pytest.raises(ValueError, match="'D' is neither a row"):
        papers.parse("a/b", {**TABLE, "figures": [{"title": "panel", "x": "q", "lines": [line]}]})
    with pytest.raises(ValueError, match="needs points or a level"):
        papers.parse("a/b", {**TABLE, "figures": [{"title": "panel", "x": "q", "lines": [{"name": "ours"}]}]})
