"""Presets: their content, their reductions, the outcomes of claims. All of them run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from undrift.cli import command
from undrift.core.errors import BadRequest
from undrift.papers import claims, figures, pages, papers, scales
from undrift.papers import results as paper_results
from undrift.papers import run as paper_run
from undrift.papers import table as paper_table
from undrift.papers.papers import Column, Preset, TableRow, Value
from undrift.papers.scales import scaled

NUMBERED = {  # the tables and figures of the papers that show an experiment
    "fliu": [*(f"table{n}" for n in (1, 2, 3)), "table3-cifar10", *(f"figure{n}" for n in range(2, 9))],
    "bound": [*(f"table{n}" for n in (1, 2, 3, 4)), *(f"figure{n}" for n in ("2", "3", "4", "5", "6a", "6b"))],
    "fednolowe": [*(f"table{n}" for n in (3, 4, 5, 6)), *(f"figure{n}" for n in range(1, 16)), "alignment"],
}
FIRST = ("bound/table1", "bound/table2", "fednolowe/table3", "flood/table5", "fedbss/table1", "fliu/table1", "fliu/table3",
         "controls/weights", "controls/flood", "controls/fedbss", "controls/uniform", "flood/table2", "flood/table3",
         "flood/table4", "flood/table6", "flood/figure7", "flood/figure8", "flood/figure9", "fedbss/table2", "fedbss/figure5",
         "fednolowe/figure12")  # fmt: skip


def preset(**changes) -> Preset:
    values = {
        "name": "a/b", "title": "t", "source": "s", "about": "",
        "options": {"data": "digits", "rounds": 100, "lr_decay": 0.99, "clients": 5, "model": "mlp(8)"},
        "rows": (TableRow("A", "fedavg"), TableRow("B", "flood(T=50, a=2)", {"lr_decay": 0.9})),
        "columns": (Column("x"), Column("y", {"clients": 4})), "values": (Value(),), "published": {"A": {"x": "50.0", "y": "lost"}},
        "claims": (), "quick": {"options": {"rounds": 10}, "columns": ["x"]}, "seeds": 3,
    }  # fmt: skip
    return Preset(**{**values, **changes})


@pytest.mark.parametrize("name", papers.names())
def test_every_preset_can_be_read_and_has_the_time_of_its_quick_scale(name):
    found = papers.load(name)
    assert found.title
    assert found.source
    assert found.claims or not found.trains
    assert 0 < found.minutes("quick") <= 8
    has = [scale for scale in scales.SCALES if scale == "paper" or getattr(found, scale)]
    for scale in has:
        asked = scaled(found, scale)
        names = [task.name for task in asked.tasks()]
        assert len(set(names)) == len(names)
    own_windows = {f"{value.name}: {value.paper}" for value in found.values if value.paper}
    assert set(scaled(found, "paper").reductions) == own_windows
    assert set(scaled(found, "quick").reductions) > own_windows
    for row in found.published.values():
        for numbers in row.values():
            assert not isinstance(numbers, list) or len(numbers) == len(found.values)


def test_the_presets_of_the_papers_exist():
    assert set(FIRST) <= set(papers.names())
    assert {f"{paper}/{item}" for paper, items in NUMBERED.items() for item in items} <= set(papers.names())
    sets = ("cifar10", "cifar100", "emnist")
    parts = [
        *(f"{item}-{name}" for item in ("table1", "table2", "figure4", "figure5") for name in sets),
        "table3-emnist",
    ]
    assert {f"bound/{part}" for part in parts} <= set(papers.names())


def test_fewer_rounds_keep_the_shares_of_schedules_and_the_final_rate():
    asked = scaled(preset(), "quick")
    assert asked.options["rounds"] == 10
    assert asked.options["lr_decay"] ** 10 == pytest.approx(0.99**100)
    b = asked.rows[1]
    assert b.method == "flood(T=5, a=2)"  # 50 of 100 rounds
    assert b.options["lr_decay"] ** 10 == pytest.approx(0.9**100)
    assert asked.rows[0].method == "fedavg"


def test_every_reduction_is_reported():
    said = "\n".join(scaled(preset(), "quick").reductions)
    for phrase in (
        "rounds 10 instead of 100",
        "flood(T=5, a=2) instead of flood(T=50, a=2)",
        "1 seed instead of 3",
        "the rate ends where it does in 100 rounds",
    ):
        assert phrase in said


def test_rows_and_columns_left_out_are_reported_and_the_others_stay_comparable():
    some = scaled(preset(), "paper", rows=["A"], columns=["x"], seeds=3)
    assert some.left_out == ("rows left out: B", "columns left out: y")
    assert some.reductions == ()
    assert scaled(preset(), "quick").left_out == ("columns left out: y",)


def test_seeds_can_be_added_to_those_that_were_run():
    more = scaled(preset(), "paper", seeds=2, first=1)
    assert more.seeds == ((1, 1), (2, 2))
    assert more.reductions == ()  # with the first one they are the paper's three
    assert scaled(preset(seeds=1, repeat=3), "paper", seeds=1, first=2).seeds == ((2, 0),)


def test_printed_numbers_lost_ones_and_rows_of_our_own():
    found = preset()
    assert found.printed("A", "x", 0) == "50.0"
    assert found.printed("A", "y", 0) == "not printed"
    assert found.printed("B", "x", 0) == "—"


def test_part_of_a_data_set_is_refused_at_paper_scale():
    with pytest.raises(BadRequest, match="cifar-100-subset"):
        scaled(preset(), "paper", data="cifar-100-subset")


# ---- scales ----------------------------------------------------------------------------------------------------------


MID = {"options": {"rounds": 50, "model": "mlp(4)"}, "of": {"y": {"clients": 3}}, "seeds": 2, "minutes": 7}


def test_mid_is_a_scale_of_the_same_shape_and_says_what_is_less():
    rows = (TableRow("A", "fedavg"), TableRow("B", "flood(T=50, a=2)", quick="fedavg", mid="flood(T=50, a=1)"))
    found = preset(mid=MID, rows=rows)
    asked = scaled(found, "mid")
    assert found.minutes("mid") == 7
    assert [line.method for line in asked.rows] == ["fedavg", "flood(T=25, a=1)"]
    assert [dict(column.options) for column in asked.columns] == [{}, {"clients": 3}]
    assert len(asked.seeds) == 2
    said = "\n".join(asked.reductions)
    for phrase in (
        "rounds 50 instead of 100",
        "model mlp(4) instead of mlp(8)",
        "y: clients 3 instead of 4",
        "2 seeds instead of 3",
    ):
        assert phrase in said


def test_a_scale_that_a_preset_does_not_have_is_refused():
    with pytest.raises(BadRequest, match="a/b has no mid scale; use --scale quick or --scale paper"):
        scaled(preset(), "mid")


def test_the_estimate_is_the_dry_run_times_the_seeds_and_nothing_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("undrift.experiment.engines.expected_seconds", lambda setup: 30.0)
    monkeypatch.chdir(tmp_path)
    arguments = [
        "paper",
        "run",
        "flood/table5",
        "--row",
        "FedAvg",
        "--row",
        "FLOOD",
        "--seeds",
        "3",
        "--workers",
        "2",
        "--estimate",
    ]
    assert command([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [cell["minutes"] for cell in found["cells"]] == [1.5] * 4  # three seeds of half a minute
    assert found["minutes"] == 3.0  # four cells, two runs at the same time
    assert command(arguments) == 0
    assert "4 cells, 3 seeds each: 3 min with 2 runs at the same time" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


# ---- presets that share runs -----------------------------------------------------------------------------------------


FIGURE = {
    "title": "t", "source": "s", "runs": "flood/table2", "rows": ["FedAvg", "FLOOD"], "columns": ["CIFAR-10, Dir 0.1"],
    "claims": [{"sentence": "c", "above": ["FLOOD", "FedAvg"]}], "untestable": [{"sentence": "u", "why": "no data"}],
}  # fmt: skip


def test_a_preset_that_shares_runs_has_the_cells_and_settings_of_the_other_and_its_own_claims():
    found, other = papers.parse("flood/figure0", FIGURE), papers.load("flood/table2")
    assert found.runs_name == "flood/table2"
    assert [claim.sentence for claim in found.claims] == ["c"]
    assert [(one.sentence, one.why) for one in found.untestable] == [("u", "no data")]
    for scale in ("quick", "paper"):
        tasks = scaled(found, scale).tasks()
        theirs = {task.name: task for task in scaled(other, scale).tasks()}
        assert len(tasks) == 2 * len(scaled(other, scale).seeds)
        assert all(task == theirs[task.name] for task in tasks)


def test_runs_that_a_results_file_holds_are_not_run_again(tmp_path, capsys):
    results = tmp_path / "results.jsonl"

    def run(*more):
        where = ["--out", str(tmp_path / "-".join(["out", *more])), "--results", str(results), "--json"]
        assert command([*SMALL, *more, "--missing", *where]) == 0
        return json.loads(capsys.readouterr().out)["rows"]

    first = run()
    again = run("--row", "FedAvg, uniform")
    assert len(results.read_text().splitlines()) == 3
    assert [one["row"] for one in again] == ["FedAvg, size", "FedAvg, uniform", "FedNolowe"]
    kept = [one["values"]["G accuracy"] for one in again if "run" not in one]
    assert np.array(kept) == pytest.approx(np.array([one["values"]["G accuracy"] for one in first]), abs=1e-4)
    assert len(run("--rounds", "3")) == 2  # other options: other runs
    assert len(results.read_text().splitlines()) == 5
    run("--seed", "0")
    assert len(results.read_text().splitlines()) == 5  # the longer runs do not hide the short ones


def test_missing_runs_need_the_file_of_the_others(capsys):
    assert command([*SMALL, "--missing"]) == 2
    assert "add --results FILE" in capsys.readouterr().err


def row(line, column, seed, number):
    return {"row": line, "column": column, "seed": seed, "values": {"G": [number, 0.0]}}


def test_of_two_results_of_a_cell_the_longer_one_counts():
    rows = [
        {**row("A", "x", 0, 0.5), "rounds": 30},
        {**row("A", "x", 0, 0.6), "rounds": 20},
        {**row("A", "x", 1, 0.7), "rounds": 20},
    ]
    assert [one["values"]["G"][0] for one in paper_table.newest(rows)] == [0.5, 0.7]


SMALL = ("paper", "run", "fednolowe/table3", "--rounds", "2", "--column", "10 %", "--row", "FedNolowe", "--row", "FedAvg, size",
         "--seeds", "1")  # fmt: skip


def test_paper_run_keeps_results_and_resumes(tmp_path, capsys):
    results, out = tmp_path / "results.jsonl", tmp_path / "out"
    arguments = [*SMALL, "--out", str(out), "--results", str(results), "--json", "--quiet"]
    assert command(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(r["row"], r["column"], r["seed"]) for r in found["rows"]] == [
        ("FedAvg, size", "10 %", 0),
        ("FedNolowe", "10 %", 0),
    ]
    assert {"method", "seed", "accuracy", "stages", "model_sha256", "values"} <= set(found["rows"][0])
    assert not found["comparable"]
    assert (out / "index.html").exists()
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert len(lines) == 2
    assert all(len(one["curve"]) == 2 and one["machine"] and one["date"] for one in lines)
    assert command([*arguments, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == found["rows"]
    assert len(results.read_text().splitlines()) == 2
    assert command(["paper", "results", str(results), "--html", str(tmp_path / "page.html")]) == 0
    text = capsys.readouterr().out
    assert "| FedNolowe |" in text
    assert "91.54" in text


def test_a_results_file_has_the_figures_of_all_presets_that_share_its_runs(tmp_path, capsys, monkeypatch):
    """Runs of FedNolowe's Table 3 are kept; Figure 3 has its three panels from them, and Table 3 has none."""
    monkeypatch.setattr(pages, "picture", lambda *_: False)  # no browser
    results = tmp_path / "results.jsonl"
    assert command([*SMALL, "--out", str(tmp_path / "out"), "--results", str(results), "--quiet"]) == 0
    assert command(["paper", "results", str(results), "--figures", str(tmp_path / "figures")]) == 0
    assert [file.name for file in (tmp_path / "figures").iterdir()] == ["fednolowe-figure3.html"]
    drawn = figures.drawn(
        papers.load("fednolowe/figure3"), [json.loads(line) for line in results.read_text().splitlines()]
    )
    assert [title.partition(":")[0] for title, _ in drawn] == ["Figure 3a", "Figure 3b", "Figure 3c"]
    assert all(list(trace.x) == [1, 2] for _, fig in drawn for trace in fig.data)
    assert "fednolowe-figure3.html" in capsys.readouterr().err


def test_values_of_presets_that_share_runs_are_the_same_where_they_have_one_name():
    """A results line keeps the values of all of them by name."""
    for name in papers.names():
        seen = {}
        for preset in papers.showing(name) if papers.load(name).runs is None else ():
            for value in preset.values:
                assert seen.setdefault(value.name, value) == value, f"{preset.name}: {value.name}"


def test_paper_run_reports_reductions_and_that_printed_numbers_are_not_comparable(tmp_path, capsys):
    assert command([*SMALL, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "data digits instead of mnist" in said.err
    assert "not comparable" in said.out
    assert "/ 91.54" in said.out
    assert "OPEN" in said.out or "TRUE" in said.out or "FALSE" in said.out


@pytest.mark.slow
@pytest.mark.parametrize("name", papers.names())
def test_every_preset_runs_and_a_cell_repeats_from_its_run_toml(name, tmp_path, capsys):
    found = papers.load(name)
    # Those that share runs, or are another preset on other data, differ in what they show: a row of one column is enough.
    first = {"rows": [row.name for row in found.rows[:1]], "columns": [found.columns[0].name]}
    asked = scaled(found, "quick", rounds=2, seeds=1, **(first if found.runs or "-" in name else {}))
    rows, _ = paper_run.run(asked, tmp_path / "runs")
    assert [row["failed"] for row in rows if "failed" in row] == []
    pages.write_page(asked, rows, tmp_path / "runs")
    if not found.trains:
        assert figures.drawn(found, rows, asked)
        return
    assert paper_table.tables(asked.preset, rows)
    assert len(claims.outcomes(asked.preset, rows)) == len(asked.preset.claims)
    if found.runs:
        return
    chosen = rows[len(rows) // 2]
    arguments = ["run", str(Path(chosen["run"]) / "run.toml"), "--out", str(tmp_path / "again"), "--json", "--quiet"]
    assert command(arguments) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["accuracy"] == chosen["accuracy"]
    assert again["model_sha256"] == chosen["model_sha256"]


def test_a_table_shows_ours_alone_where_the_paper_prints_nothing():
    rows = [{"row": "A", "column": "x", "seed": 0, "values": {"G": [0.5, 0.0]}}]
    with_printed = paper_table.tables(preset(), rows)[0][1]
    assert with_printed == [["ours / printed", "x"], ["A", "50.00 / 50.0"]]
    assert paper_table.tables(preset(published={}), rows)[0][1] == [["ours", "x"], ["A", "50.00"]]


def test_cells_with_fewer_seeds_than_others_say_so():
    table = [["ours", "x"], ["A", "50.00 ± 1.00"], ["B", "40.00"]]
    rows = [{"row": name, "column": "x", "rounds": 20} for name in "AAB"]
    assert paper_results.with_rounds(preset(), rows, table)[1:] == [
        ["A", "50.00 ± 1.00 (20)"],
        ["B", "40.00 (20; one seed)"],
    ]
