"""Runs on one page: which of them count, and what they are called."""

from __future__ import annotations

from undrift.report.report import what_was_tried
from undrift.study.compare import compare
from undrift.study.load_runs import seen

SMALL = {"clients": 4, "rounds": 2, "model": "mlp(8)", "evaluate_every": 2}


def labels(folder):
    return [(run.label, run.row["seed"]) for run in seen([folder])]


def test_a_run_is_called_by_its_method_and_by_what_sets_it_apart(tmp_path):
    methods = ["fedavg", "fedprox", ("scaffold", {"lr": 0.01}), ("fedbss", {"lr": 0.02}), ("fedbss", {"epochs": 3})]
    compare(methods, out=tmp_path / "c", **SMALL)
    called = {"fedavg", "fedprox", "scaffold lr=0.01", "fedbss epochs=2 lr=0.02", "fedbss epochs=3 lr=0.05"}
    assert {label for label, _ in labels(tmp_path / "c")} == called


def test_points_that_the_grid_did_not_choose_are_tried_ones_not_results(tmp_path):
    done = compare(
        ["fedavg", "fedprox"], grid={"lr": [1e-6, 0.1]}, seeds=2, validation=0.2, out=tmp_path / "g", **SMALL
    )
    assert labels(tmp_path / "g") == [("fedavg", 0), ("fedavg", 1), ("fedprox", 0), ("fedprox", 1)]
    assert [run.row["accuracy"] for run in seen([tmp_path / "g"])] == [
        row["accuracy"] for row in sorted(done.rows, key=lambda row: row["method"])
    ]
    tried = what_was_tried(tmp_path / "g")
    assert [line[:2] + line[3:] for line in tried] == [
        ["fedavg", "lr=0.1", "chosen"],
        ["fedavg", "lr=1e-06", "—"],
        ["fedprox", "lr=0.1", "chosen"],
        ["fedprox", "lr=1e-06", "—"],
    ]
    assert all(float(good[2]) > float(bad[2]) for good, bad in (tried[:2], tried[2:]))
    again = compare(["fedavg", "fedprox"], grid={"lr": [1e-6, 0.1]}, seeds=3, validation=0.2, out=tmp_path / "g",
                    resume=True, **SMALL)  # fmt: skip
    assert len(seen([tmp_path / "g"])) == len(again.rows) == 6
