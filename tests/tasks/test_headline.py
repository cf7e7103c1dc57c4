"""Lower is better where the task says so: ranks, worst tenth, choice of a grid, --stop-at, sentences."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import undrift as ud
from undrift.cli.app import app
from undrift.core.errors import BadRequest
from undrift.core.headline import ACCURACY, Headline
from undrift.evaluate.views import protocols
from undrift.experiment.summary import spread
from undrift.experiment.tables import legend
from undrift.report.export import csv_text, latex
from undrift.study.compare import validation_score
from undrift.study.conclusion import by_rank
from undrift.study.standings import ranks, results_table, standings_legend, standings_table, win_shares
from undrift.testing.task_table import PROBLEMS, problem

RMSE = Headline("rmse", "lower", "RMSE", False)


def row(method: str, seed: int, value: float) -> dict:
    stage = {"acc_local": {"mean": value + 1, "worst_decile": value + 2}, "acc_global": {"mean": value}}
    return {
        "method": method, "seed": seed, "seconds": 1.0, "accuracy": None, "headline": RMSE.as_json(value),
        "stages": {"G": {"rmse": value, "validation_rmse": value}, "L1": stage, "L2": stage}, "times": {"client": 0, "server": 0},
    }  # fmt: skip


ROWS = [row(method, seed, base + 0.01 * seed) for seed in range(4) for method, base in (("bad", 60.0), ("good", 50.0))]


def test_the_smallest_error_ranks_first():
    value = lambda one: one["headline"]["value"]  # noqa: E731
    assert ranks(ROWS, value) == {"bad": 2.0, "good": 1.0}
    assert win_shares(ROWS, value) == {"bad": 0.0, "good": 1.0}
    head, first, second = results_table(ROWS)
    assert head[:3] == ["method", "G", "L1 RMSE(L)"]
    assert (first[0], second[0]) == ("good", "bad")
    assert first[1] == "50.02 ± 0.01"
    assert standings_table(ROWS)[1][:3] == ["good", "1.0", "100 %"]
    assert "in points" not in standings_legend(ROWS)


def test_the_conclusion_says_lowest():
    found = by_rank(ROWS)
    assert found.methods == ("good", "bad")
    assert found.ahead("good") == ["bad"]
    assert found.ahead("bad") == []
    assert "good is ahead of bad" in found.sentence
    one_seed = by_rank([one for one in ROWS if one["seed"] == 0]).sentence
    assert "good has the lowest G (−10.0" in one_seed


def test_higher_is_better_stays_as_it_was():
    rows = [{**one, "headline": ACCURACY.as_json(one["headline"]["value"] / 100)} for one in ROWS]
    assert by_rank(rows).methods == ("bad", "good")
    assert results_table(rows)[0][2] == "L1 Acc(L)"


def test_the_worst_tenth_has_the_largest_errors():
    values = [float(v) for v in range(1, 21)]
    assert spread(values, lower=True)["worst_decile"] == 19.5
    assert spread(values, lower=True)["best_decile"] == 1.5
    assert spread(values)["worst_decile"] == 1.5


def test_a_grid_chooses_the_smallest_error():
    scores = [validation_score(one) for one in ROWS[:2]]
    assert scores.index(max(scores)) == 1
    assert validation_score({**ROWS[0], "stages": {"G": None}}) == float("-inf")


def test_files_for_a_paper_name_the_metric_and_mark_the_smallest():
    text = latex(ROWS)
    assert "% rmse, mean" in text
    assert r"\textbf{50.02 $\pm$ 0.01}" in text
    assert "60.02" in text.replace(r"\textbf{60", "")
    assert csv_text(ROWS).splitlines()[0].startswith("method,seed,rounds,G,L1 RMSE(L)")
    assert "RMSE: rmse, lower is better" in legend(RMSE)


def test_stop_at_ends_when_the_error_is_small_enough():
    federation = problem("regression")
    clients = [federation.train(client) for client in range(3)]
    held = ud.Federation.from_clients(clients, task="regression", validation=0.2)
    settings = {
        "model": PROBLEMS["regression"][1],
        "rounds": 30,
        "epochs": 1,
        "lr": 0.05,
        "engine": "inline",
        "out": False,
    }
    whole = ud.run("fedavg", held, **{**settings, "rounds": 8})
    goal = whole.curve("G", "validation").values[5, 0]
    stopped = ud.run("fedavg", held, **settings, stop_at=float(goal))
    assert stopped.summary["rounds"] <= 6
    assert stopped.summary["stages"]["G"]["validation_rmse"] <= goal
    with pytest.raises(BadRequest, match="--stop-at must be a number above 0 and at most 1"):
        ud.run("fedavg", ud.federate("digits", clients=2, validation=0.2), stop_at=2, out=False)


def test_thresholds_are_in_units_of_the_headline():
    settings = {"model": PROBLEMS["regression"][1], "rounds": 2, "cohort": 1.0, "engine": "inline", "out": False}
    usual = ud.run("fedavg", problem("regression"), **settings)
    assert usual.summary["stages"]["L1"]["rho"] == {}  # 0.5 of what?
    values = usual.curve("L1", "own").values[-1]
    between = float(sorted(values)[1] + sorted(values)[2]) / 2
    found = ud.run("fedavg", problem("regression"), **settings, thresholds=(between, 1e6, -3.0))
    assert list(found.summary["stages"]["L1"]["rho"].values()) == [2, 5, 0]  # better is below
    assert any(line[0] == "rounds until 1e+06" and line[1] == "1" for line in protocols(found.rows, (1e6,)))
    with pytest.raises(
        BadRequest, match=r"--thresholds must be a number of at least 0 and at most 1, a share, not 1\.5"
    ):
        ud.run("fedavg", problem("sequence"), **{**settings, "model": PROBLEMS["sequence"][1]}, thresholds=(0.5, 1.5))


def test_a_headline_below_zero_can_be_stopped_at():
    class Likelihood(ud.tasks.regression().__class__):
        """Higher is better, and never above 0."""

        headline, better, title = "minus_mse", "higher", "−MSE"

        def measure(self, output, y):
            return {"minus_mse": -(super().measure(output, y)["rmse"] ** 2)}

    clients = [problem("regression").train(client) for client in range(3)]
    held = ud.Federation.from_clients(clients, task=Likelihood(), validation=0.2)
    settings = {"model": PROBLEMS["regression"][1], "rounds": 20, "lr": 0.05, "engine": "inline", "out": False}
    stopped = ud.run("fedavg", held, **settings, stop_at=-1.0)
    assert stopped.summary["rounds"] < 20
    assert -1.0 <= stopped.summary["stages"]["G"]["validation_minus_mse"] <= 0


def test_commands_name_the_metric(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    federation = problem("regression")
    ud.run("fedavg", federation, model=PROBLEMS["regression"][1], rounds=2, out="run", engine="inline")

    def said(*words: str) -> str:
        done = CliRunner().invoke(app, list(words))
        assert done.exit_code == 0, done.output
        return done.output

    shown = said("show", "run")
    assert "G rmse" in shown
    assert "L1 RMSE(L)" in shown
    assert "Acc" not in shown
    listed = json.loads(said("runs", ".", "--json"))[0]
    assert listed["accuracy"] is None
    assert listed["headline"]["name"] == "rmse"
    assert f"{listed['headline']['value']:.4g}" in said("runs", ".")
    said("report", "run", "--out", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "L1 RMSE(L)" in page
    assert "Acc(" not in page


def test_nothing_says_accuracy_where_there_is_none(tmp_path, monkeypatch):
    """Tables, progress, files for a paper, pages, the live page: of a comparison whose headline is an RMSE."""
    from undrift.live import run_view
    from undrift.live.records import read_run

    monkeypatch.chdir(tmp_path)
    options = ["--data", "diabetes", "--clients", "3", "--partition", "iid", "--rounds", "2", "--cohort", "1.0"]
    said = CliRunner().invoke(app, ["compare", "fedavg", "scaffold", *options, "--workers", "1", "--out", "both"])
    files = ["report", "both", "--out", "page.html", "--latex", "table.tex", "--csv", "rows.csv"]
    reported = CliRunner().invoke(app, files)
    assert (said.exit_code, reported.exit_code) == (0, 0), said.output + reported.output
    alone = CliRunner().invoke(app, ["run", "--method", "fedavg", *options, "--out", "one", "--log", "rounds.log"])
    row = read_run("one", tmp_path / "one", running=True)
    texts = {
        "compare": said.output, "run": alone.output, "log": Path("rounds.log").read_text(),
        "page": re.sub(r"<(script|style)\b.*?</\1>", "", Path("page.html").read_text(), flags=re.DOTALL),
        "latex": Path("table.tex").read_text(), "csv": Path("rows.csv").read_text(),
        "live": repr(run_view.sections(row, 0)), "show": CliRunner().invoke(app, ["show", "one"]).output,
    }  # fmt: skip
    for place, text in texts.items():
        assert "rmse" in text.lower(), (place, text[:500])
        assert not (found := re.findall(r".{30}\b(?:accuracy|Acc)\b.{30}", text)), (place, found[:3])
