"""Tables and figures for a paper, and pages of many runs."""

from __future__ import annotations

import csv

import pytest

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.report import export, report
from undrift.study.load_runs import load_runs

SMALL = {"rounds": 2, "clients": 3, "epochs": 1, "model": "logistic", "evaluate_every": 1, "engine": "inline"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    places = [root / name for name in ("a", "b", "c")]
    for place, lr in zip(places, (0.1, 0.01, 0.001)):
        ud.run("fedavg", lr=lr, out=place, **SMALL)
    return places


def row(method, seed, g, own):
    stages = {"G": {}, "L1": {"acc_local": {"mean": own}}, "L2": None}
    return {"method": method, "seed": seed, "accuracy": g, "seconds": 1.0, "stages": stages}


def test_the_latex_table_escapes_names_and_marks_the_best_of_each_column():
    rows = [row("a_b", 0, 0.5, 0.9), row("a_b", 1, 0.7, 0.9), row("c@d", 0, 0.4, 0.95), row("c@d", 1, 0.4, 0.95)]
    lines = export.latex(rows).splitlines()
    assert r"a\_b & \textbf{60.00 $\pm$ 14.14} & 90.00 $\pm$ 0.00 & --- & --- & --- & --- \\" in lines
    assert r"c@d & 40.00 $\pm$ 0.00 & \textbf{95.00 $\pm$ 0.00} & --- & --- & --- & --- \\" in lines
    assert lines[1] == r"\begin{tabular}{lrrrrrr}"


def test_the_csv_has_all_digits_of_every_run(folders):
    rows = [run.row for run in load_runs(folders)]
    found = list(csv.DictReader(export.csv_text(rows).splitlines()))
    assert [float(line["G"]) for line in found] == [row["accuracy"] for row in rows]
    assert [line["method"] for line in found] == ["fedavg lr=0.1", "fedavg lr=0.01", "fedavg lr=0.001"]


def test_only_the_first_method_and_the_best_are_shown_client_by_client(folders, monkeypatch):
    """Law: what is drawn does not grow with the number of runs."""
    monkeypatch.setattr(report, "DETAILS", 2)
    monkeypatch.setattr(report, "CURVES", 2)
    runs = load_runs(folders[::-1])
    best = max(runs[1:], key=lambda run: run.row["accuracy"])
    drawn, shown, note = report.chosen_runs(runs)
    assert [run.options["lr"] for run in shown] == [run.options["lr"] for run in drawn] == [0.001, best.options["lr"]]
    assert "seed 0" in note
    assert "2 of 3" in note
    parts = {section[0]: section[1] for section in report.sections(runs, folders)}
    assert len(parts["notes"]) == len(parts["clients"].data) == len(parts["curves"].data) == 2
    assert len(parts["table"]) == 4


def test_a_curve_has_at_most_so_many_points(monkeypatch):
    from undrift.report import plots

    by_round = {round: [float(round)] for round in range(5000)}
    kept = list(plots.thinned(by_round))
    assert len(kept) == plots.POINTS
    assert (kept[0], kept[-1]) == (0, 4999)
    assert plots.thinned({3: [1.0]}) == {3: [1.0]}


@pytest.mark.extras
def test_figures_are_written_as_svg_and_pdf(folders, tmp_path):
    sections = report.for_paper(load_runs(folders))
    written = export.write_figures(tmp_path / "f", sections)
    assert {path.name for path in written} >= {"curves.svg", "curves.pdf", "clients.svg", "scatter-l1.pdf"}
    assert b"fedavg lr=0.01" in (tmp_path / "f" / "curves.svg").read_bytes()
    assert (tmp_path / "f" / "curves.pdf").read_bytes().startswith(b"%PDF")
    again = export.write_figures(tmp_path / "g", sections)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]


def test_figures_without_matplotlib_name_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(BadRequest, match=r"undrift\[figures\]"):
        export.write_figures(tmp_path, [])
