"""Grids: which values are tried for which method, and what is refused."""

from __future__ import annotations

import pytest

from undrift.cli.compare import read_grid
from undrift.core.errors import BadRequest
from undrift.study.compare import compare
from undrift.study.comparison import Comparison, MethodEntry, read_comparison
from undrift.study.dry_run import weighting_note
from undrift.study.grid import at_point, check_grid, points_of
from undrift.study.tasks import StudyCallback

SMALL = {"rounds": 1, "clients": 4, "epochs": 1, "model": "mlp(8)", "evaluate_every": 1}


@pytest.mark.parametrize("text", ["fedprox.mu=0.01,0.1", "fedprox(mu=0.01,0.1)", "fedprox( mu=0.01, 0.1 )"])
def test_a_parameter_is_searched_by_name_or_in_brackets(text):
    assert read_grid([text]) == {"fedprox.mu": [0.01, 0.1]}


def test_values_with_brackets_stay_whole():
    assert read_grid(["model=mlp(10,20),logistic lr=0.1"]) == {"model": ["mlp(10,20)", "logistic"], "lr": [0.1]}


def test_a_parameter_is_tried_where_the_method_is_named_and_does_not_set_it():
    grid = {"fedprox.mu": [0.01, 0.1], "lr": [1.0, 2.0], "scaffold.lr": [3.0]}
    points = {
        text: points_of(MethodEntry(text), grid)
        for text in ("fedavg", "fedprox", "flood+fedprox@bound", "fedprox(mu=1)", "scaffold")
    }
    assert points["fedavg"] == points["fedprox(mu=1)"] == [{"lr": 1.0}, {"lr": 2.0}]
    assert len(points["fedprox"]) == len(points["flood+fedprox@bound"]) == 4
    assert points["scaffold"] == [{"scaffold.lr": 3.0}]  # its own values, instead of those of all
    assert at_point("flood+fedprox@bound", {"fedprox.mu": 0.1, "lr": 2.0}) == (
        "flood+fedprox(mu=0.1)@bound",
        {"lr": 2.0},
    )
    assert at_point("scaffold", {"scaffold.lr": 3.0}) == ("scaffold", {"lr": 3.0})


def test_parameters_of_own_methods_are_searched(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("def prox(rho=1.0):\n    return f'fedprox(mu={rho})'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert read_grid(["mine:prox(rho=1,2)"]) == {"mine:prox.rho": [1, 2]}
    for key in ("mine:prox.rho", "prox.rho"):
        check_grid({key: [1, 2]}, [MethodEntry("mine:prox")])
        assert points_of(MethodEntry("mine:prox"), {key: [1, 2]}) == [{key: 1}, {key: 2}]
        assert at_point("flood+mine:prox", {key: 2}) == ("flood+mine:prox(rho=2)", {})


@pytest.mark.parametrize(
    ("key", "word"),
    [
        ("objective", "turn one method into another"),
        ("weighting", "turn one method into another"),
        ("fedavg.server", "turn one method into another"),
        ("fedprox.nu", "mu"),
        ("moon.mu", "none of fedavg, fedprox names"),
        ("fedavg.clients", "easiest federation"),
        ("fedavg.seed", "luckiest seed"),
    ],
)
def test_a_grid_never_turns_one_method_into_another(key, word):
    with pytest.raises(BadRequest, match=word):
        check_grid({key: [0.1]}, [MethodEntry("fedavg"), MethodEntry("fedprox")])


def test_labels_show_what_was_chosen():
    comparison = Comparison((MethodEntry("fedprox", {"epochs": 3}),), {"lr": 0.5}, ((0, 0),))
    task = comparison.task(0, (0, 0), {"fedprox.mu": 0.1, "lr": 0.2})
    assert task.row["method"] == "fedprox(mu=0.1) epochs=3 lr=0.2"
    assert task.method == "fedprox(mu=0.1)"
    assert task.settings["lr"] == 0.2
    assert task.row["chosen"] == {"fedprox.mu": 0.1, "lr": 0.2}


class Messages(StudyCallback):
    def __init__(self):
        self.heard = []

    def on_message(self, sentence):
        self.heard.append(sentence)


def test_a_note_is_said_once_and_weightings_that_differ_are_named(tmp_path):
    """SCAFFOLD brings uniform weights: its row differs from FedAvg's in two things."""
    heard = Messages()
    done = compare(
        ["fedavg", "fedprox", "scaffold"], grid={"fedprox.mu": [0.0, 1.0]}, validation=0.2, partition="dirichlet(0.01)",
        out=tmp_path / "c", callback=heard, **SMALL,
    )  # fmt: skip
    assert len(heard.heard) == len(set(heard.heard))
    assert sum("too few samples" in sentence for sentence in heard.heard) <= 1
    assert sum("weighed differently: size in fedavg, fedprox; uniform in scaffold" in s for s in heard.heard) == 1
    assert next(row["method"] for row in done.rows) == "fedavg"
    assert done.rows[1]["method"] == f"fedprox(mu={done.rows[1]['chosen']['fedprox.mu']})"
    assert read_comparison(tmp_path / "c").grid == {"fedprox.mu": [0.0, 1.0]}
    from undrift.study.load_runs import load_runs

    assert {run.label for run in load_runs([tmp_path / "c"])} == {row["method"] for row in done.rows}
    page = done.report().read_text()
    assert "Clients are weighed differently" in page
    assert "Client by client, and in the notes of each method: seed 0" in page


def test_equal_weightings_need_no_note():
    assert weighting_note({"a": "size", "b": "size"}) == ""
