"""Presets: their content, their reductions, the outcomes of claims. All of them run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from undrift.cli import command
from undrift.core.errors import BadRequest
from undrift.papers import claims, papers
from undrift.papers import run as paper_run
from undrift.papers import table as paper_table
from undrift.papers.papers import Column, Preset, TableRow, Value, scaled

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
    assert found.claims
    assert 0 < found.minutes <= 8
    for scale in papers.SCALES:
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
    asked = scaled(papers.load(name), "quick", rounds=2, seeds=1)
    rows, _ = paper_run.run(asked, tmp_path / "runs")
    assert [row["failed"] for row in rows if "failed" in row] == []
    paper_run.write_page(asked, rows, tmp_path / "runs")
    assert paper_table.tables(asked.preset, rows)
    assert len(claims.outcomes(asked.preset, rows)) == len(asked.preset.claims)
    chosen = rows[len(rows) // 2]
    arguments = ["run", str(Path(chosen["run"]) / "run.toml"), "--out", str(tmp_path / "again"), "--json", "--quiet"]
    assert command(arguments) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["accuracy"] == chosen["accuracy"]
    assert again["model_sha256"] == chosen["model_sha256"]
