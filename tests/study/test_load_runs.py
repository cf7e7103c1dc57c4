"""Runs loaded for one page: which of them count, and their labels."""

from __future__ import annotations

from undrift.report.report import grid_rows
from undrift.study.compare import compare
from undrift.study.load_runs import load_runs

SMALL = {"clients": 4, "rounds": 2, "model": "mlp(8)", "evaluate_every": 2}


def labels(folder):
    return [(run.label, run.row["seed"]) for run in load_runs([folder])]


def test_a_label_is_the_method_and_the_options_that_distinguish_the_run(tmp_path):
    methods = ["fedavg", "fedprox", ("scaffold", {"lr": 0.01}), ("fedbss", {"lr": 0.02}), ("fedbss", {"epochs": 3})]
    compare(methods, out=tmp_path / "c", **SMALL)
    expected = {"fedavg", "fedprox", "scaffold lr=0.01", "fedbss epochs=2 lr=0.02", "fedbss epochs=3 lr=0.05"}
    assert {label for label, _ in labels(tmp_path / "c")} == expected


def test_rejected_grid_points_are_listed_but_are_no_results(tmp_path):
    comparison = compare(
        ["fedavg", "fedprox"], grid={"lr": [1e-6, 0.1]}, seeds=2, validation=0.2, out=tmp_path / "g", **SMALL
    )
    assert labels(tmp_path / "g") == [(f"{name} lr=0.1", seed) for name in ("fedavg", "fedprox") for seed in (0, 1)]
    assert [run.row["accuracy"] for run in load_runs([tmp_path / "g"])] == [
        row["accuracy"] for row in sorted(comparison.rows, key=lambda row: row["method"])
    ]
    tried = grid_rows(tmp_path / "g")
    assert [line[:2] + line[3:] for line in tried] == [
        ["fedavg lr=0.1", "lr=0.1", "chosen"],
        ["fedavg lr=1e-06", "lr=1e-06", "—"],
        ["fedprox lr=0.1", "lr=0.1", "chosen"],
        ["fedprox lr=1e-06", "lr=1e-06", "—"],
    ]
    assert all(float(good[2]) > float(bad[2]) for good, bad in (tried[:2], tried[2:]))
    again = compare(
        ["fedavg", "fedprox"],
        grid={"lr": [1e-6, 0.1]},
        seeds=3,
        validation=0.2,
        out=tmp_path / "g",
        resume=True,
        **SMALL,
    )
    assert len(load_runs([tmp_path / "g"])) == len(again.rows) == 6
