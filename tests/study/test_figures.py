"""Figures of presets: a value over a parameter with its interval over seeds, curves, notes, partitions and schedules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from undrift.methods.naming import method
from undrift.papers import figures, papers
from undrift.papers import run as paper_run
from undrift.papers.figures.series import series_of
from undrift.papers.scales import scaled
from undrift.store.record import rows_of
from undrift.study.tasks import Federations

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


# ---- curves and notes ------------------------------------------------------------------------------------------------


def with_figures(*items, **changes):
    return papers.parse("a/b", {**TABLE, "figures": list(items), **changes})


def test_curves_are_means_and_deviations_over_seeds_one_panel_per_column():
    preset = with_figures({"kind": "curves", "title": "Figure 3", "rows": ["A", "B"]})
    rows = [{**result("A", seed, 0), "curve": curve} for seed, curve in enumerate(([0.1, 0.2], [0.3, 0.6]))]
    rows += [{**result("B", 0, 0, "y"), "curve": [0.5, 0.5]}, {**result("C", 0, 0), "curve": [0.9, 0.9]}]
    (title, x), (_, y) = figures.drawn(preset, rows)
    assert title == "Figure 3: x"
    band, line = x.data  # C is not asked for
    assert list(line.x) == [1, 2]
    assert list(line.y) == pytest.approx([0.2, 0.4])
    # two seeds: their deviation is half of their distance times the root of two
    assert list(band.y) == pytest.approx(
        [0.2 + 0.1 * 2**0.5, 0.4 + 0.2 * 2**0.5, 0.4 - 0.2 * 2**0.5, 0.2 - 0.1 * 2**0.5]
    )
    assert [trace.name for trace in y.data] == ["B"]  # one seed has no band


def test_dashed_rows_have_the_colour_of_their_solid_partners():
    preset = with_figures(
        {"kind": "curves", "title": "t", "rows": ["A"], "dashed": ["B"], "dotted": ["C"], "columns": ["x"]}
    )
    rows = [{**result(name, 0, 0), "curve": [0.5]} for name in "ABC"]
    ((title, fig),) = figures.drawn(preset, rows)
    assert title == "t"
    assert [line.line.dash for line in fig.data] == ["solid", "dash", "dot"]
    assert len({line.line.color for line in fig.data}) == 1


def test_panels_can_be_rows_and_lines_columns():
    preset = with_figures({"kind": "curves", "title": "t", "panels": "rows", "rows": ["A"]})
    rows = [{**result("A", 0, 0, column), "curve": [0.5]} for column in "xy"]
    ((_, fig),) = figures.drawn(preset, rows)
    assert [line.name for line in fig.data] == ["x", "y"]
    with pytest.raises(ValueError, match="columns or rows, not 'seeds'"):
        with_figures({"kind": "curves", "title": "t", "panels": "seeds"})


def test_a_kind_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="'pie'; it must be one of value, curves, trace"):
        with_figures({"kind": "pie", "title": "t"})
    with pytest.raises(ValueError, match="'D' is neither a row"):
        with_figures({"kind": "curves", "title": "t", "dashed": ["D"]})


RUN = {"options": {"data": "digits", "rounds": 3, "clients": 4, "model": "mlp(8)", "evaluate_every": 1,
                   "partition": "quantity_skew(1)", "evaluate_clients": "all", "selection": "all"},
       "columns": [{"name": "x"}],
       "rows": [{"name": "A", "method": "fliu"}, {"name": "B", "method": "bound"}, {"name": "C", "method": "fedavg"}]}  # fmt: skip
DRAWN = (
    {"kind": "curves", "title": "loss", "metric": "loss"},
    {"kind": "curves", "title": "below", "stage": "L2", "data": "own", "below": 0.9},
    {"kind": "trace", "title": "γ", "notes": ["personalize.gamma"]},
    {"kind": "trace", "title": "bounds", "notes": ["weighting.u", "weighting.l"], "over": "weighting.delta"},
)


def test_a_results_file_keeps_what_its_figures_draw(tmp_path):
    """The same figures from the records and from the file; the numbers are those of the record."""
    preset = with_figures(*DRAWN, **RUN)
    asked = scaled(preset, "paper")
    results = tmp_path / "results.jsonl"
    rows, _ = paper_run.run(asked, tmp_path / "runs", results=results)
    assert [row["failed"] for row in rows if "failed" in row] == []
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    live, kept = figures.drawn(preset, rows), figures.drawn(preset, lines)
    assert [title for title, _ in live] == ["loss", "below", "γ", "bounds"]
    for (_, one), (_, other) in zip(live, kept):
        assert [line.name for line in one.data] == [line.name for line in other.data]
        for a, b in zip(one.data, other.data):
            assert list(a.x) == pytest.approx(list(b.x))
            assert list(a.y) == pytest.approx(list(b.y), abs=1e-5)
    record = Path(rows[0]["run"])
    gammas = rows_of(record, "SELECT value FROM notes WHERE name='gamma' AND round=2")
    assert live[2][1].data[0].y[-1] == pytest.approx(sum(float(value) for (value,) in gammas) / 4)
    below = rows_of(
        record, "SELECT value FROM metrics WHERE stage='L2' AND data='own' AND metric='accuracy' AND round=0"
    )
    assert live[1][1].data[0].y[0] == sum(value < 0.9 for (value,) in below) / 4
    upper, lower = live[3][1].data  # of the only row with bounds, over the ten distances 0.02 … 0.2
    assert list(upper.x) == pytest.approx([0.02 * n for n in range(1, 11)])
    assert all(u > l for u, l in zip(upper.y, lower.y))


def test_a_value_can_be_what_a_part_noted(tmp_path):
    preset = with_figures(values=[{"name": "γ", "note": "personalize.gamma", "window": 0, "factor": 1.0}], **RUN)
    rows, _ = paper_run.run(scaled(preset, "paper", rows=["A"]), tmp_path / "runs")
    noted = rows_of(Path(rows[0]["run"]), "SELECT value FROM notes WHERE name='gamma'")
    assert rows[0]["values"]["γ"][0] == pytest.approx(sum(float(value) for (value,) in noted) / 12)


def test_points_of_all_clients_are_pooled_and_a_surface_is_drawn():
    preset = with_figures({"kind": "pictures", "title": "t", "note": "sampling.survey"},
                          {"kind": "pictures", "title": "s", "note": "diagnose.surface", "rows": ["B"]})  # fmt: skip
    rows = [{**result("A", 0, 0), "series": {"sampling.survey": {"loss": [1.0, 2.0], "uncertainty": [0.1, 0.2]}}}]
    rows += [{**result("B", 0, 0), "series": {"diagnose.surface": {"steps": [-1, 0, 1], "loss": [[1] * 3] * 3}}}]
    (title, points), (_, surface) = figures.drawn(preset, rows)
    assert title == "t: A, x"
    assert (list(points.data[0].x), list(points.data[0].y)) == ([1.0, 2.0], [0.1, 0.2])
    assert points.layout.xaxis.title.text == "loss"
    assert surface.data[0].type == "surface"
    assert series_of({**result("A", 0, 0), "failed": "why", "run": "nowhere"}, preset.figures[0].source) == {}


# ---- without training ------------------------------------------------------------------------------------------------


def test_a_partition_is_drawn_without_training_and_counts_every_sample():
    table = {**TABLE, "options": {"data": "digits", "rounds": 10, "clients": 5}, "rows": []}
    table["columns"] = [{"name": "IID"}, {"name": "PATH", "options": {"partition": "pathological(2)"}}]
    table["figures"] = [{"kind": "partition", "title": "classes", "columns": ["PATH"]},
                        {"kind": "partition", "title": "sizes", "show": "sizes"}]  # fmt: skip
    preset = papers.parse("a/b", table)
    asked = scaled(preset, "paper")
    assert not preset.trains
    assert asked.tasks() == []
    assert figures.drawn(preset, []) == []  # nobody said with which settings
    (title, classes), _, (_, sizes) = figures.drawn(preset, [], asked)
    assert title == "classes"
    federation = Federations().of(asked.settings(asked.columns[1]))
    assert len(classes.data[0].x) == sum((federation.counts(client) > 0).sum() for client in range(5))
    assert list(sizes.data[0].y) == federation.sizes.tolist()


def test_a_schedule_is_what_the_part_computes():
    rows = [{"name": "early", "method": "flood(T=6, a=3)"}, {"name": "late", "method": "flood(T=6, a=3, start=late)"}]
    figure = {"kind": "schedule", "title": "λ", "of": "sampling.level", "y": "λ"}
    preset = papers.parse("a/b", {**TABLE, "options": {"data": "digits", "rounds": 10, "model": "mlp(8)"},
                                  "columns": [{"name": "all"}], "rows": rows, "figures": [figure]})  # fmt: skip
    assert not preset.trains
    ((_, fig),) = figures.drawn(preset, [], scaled(preset, "paper"))
    early, late = fig.data
    assert early.y[0] == late.y[4] == 1.0
    assert early.y[7] == 6.0  # 2a from round T + 1 on
    # half of T after the first weighted round: a
    assert early.y[4] == pytest.approx(method("flood(T=6, a=3)").one("sampling").a)


@pytest.mark.parametrize(
    ("places", "log"),
    [
        ((0.05, 0.1, 0.5, 10), True),
        ((20, 400), False),
        ((0, 10), False),
        ((-1, 100), False),
        (("a", "b"), False),
        ((), False),
    ],
)
def test_a_parameter_over_decades_has_a_logarithmic_axis(places, log):
    assert figures.draw.over_decades(places) is log
