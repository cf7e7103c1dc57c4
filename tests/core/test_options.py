"""Options are the same words on the command line, as keywords and in run.toml; a run.toml repeats its run."""

from __future__ import annotations

import math
import tomllib

import pytest

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.experiment.options import Options, from_keywords
from undrift.experiment.run_toml import read_toml

SMALL = {"clients": 5, "rounds": 2, "partition": "dirichlet(0.5)", "model": "mlp(8)"}


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"clients": 0}, "clients"), ({"clients": 2.5}, "clients"), ({"rounds": -1}, "rounds"), ({"rounds": True}, "rounds"),
        ({"epochs": 0}, "epochs"), ({"batch": 0}, "batch"), ({"lr": math.nan}, "lr"), ({"lr": 0.0}, "lr"),
        ({"lr": "fast"}, "lr"), ({"lr": math.inf}, "lr"), ({"momentum": 1.0}, "momentum"), ({"momentum": -0.1}, "momentum"),
        ({"weight_decay": -1.0}, "weight-decay"), ({"lr_decay": 0.0}, "lr-decay"), ({"clip": 0.0}, "clip"),
        ({"validation": 1.0}, "validation"), ({"proxy": -0.1}, "proxy"), ({"optimizer": "sdg"}, "did you mean sgd"),
        ({"engine": "process"}, "did you mean processes"), ({"workers": 0}, "workers"), ({"stop_at": 0.9}, "--validation"),
        ({"thresholds": "0.5,x"}, "thresholds"), ({"thresholds": (math.nan,)}, "thresholds"), ({"memory": 0.0}, "memory"),
        ({"evaluate_clients": "none"}, "evaluate-clients"), ({"evaluate_every": 0}, "evaluate-every"),
        ({"round": 3}, "did you mean rounds"), ({"learning_rate": 3}, "unknown option"),
    ],
    ids=str,
)  # fmt: skip
def test_what_no_run_can_have_is_refused_with_its_name(given, word):
    with pytest.raises(BadRequest) as caught:
        from_keywords(given)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_defaults_are_those_of_the_manual():
    options = Options()
    assert (options.method, options.data, options.partition, options.clients) == (
        "fedavg",
        "digits",
        None,  # dirichlet(0.3) where there are classes
        None,  # 20, or as many as the data name
    )
    assert (options.rounds, options.epochs, options.batch, options.lr, options.momentum) == (50, 2, 32, 0.05, 0.9)
    assert (options.optimizer, options.selection, options.evaluate_every) == ("sgd", "uniform", 5)
    assert options.thresholds == (0.5, 0.8, 0.9, 0.95)
    assert Options(seed=3).federation_seed == 3
    assert Options(seed=3, data_seed=4).federation_seed == 4


def test_thresholds_are_read_from_text():
    assert from_keywords({"thresholds": "0.5,0.7"}).thresholds == (0.5, 0.7)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("roundz = 3", "did you mean rounds"),
        ('rounds = "three"', "rounds"),
        ("rounds = 3.5", "rounds"),
        ("rounds = true", "rounds"),
        ("lr = [1]", "lr"),
        ("tolerate = 1", "tolerate"),
        ("method = {}", "method"),
        ("rounds = ", "not a TOML file"),
        ("parts = 3", "parts"),
        ("parts = [3]", "parts"),
        ('parts = ["fedprox"]', "axis.name"),
        ('parts = ["objective.fedporx"]', "did you mean fedprox"),
    ],
)
def test_a_run_toml_with_a_wrong_key_or_type_is_refused_by_name(tmp_path, line, word):
    path = tmp_path / "run.toml"
    path.write_text(line + "\n")
    with pytest.raises(BadRequest, match=word):
        repeated(path)


def repeated(path):
    table = read_toml(path)
    return ud.run(parts=table.pop("parts", None), out=False, **{**SMALL, **table})


def test_a_file_that_is_missing_or_a_folder_is_said(tmp_path):
    with pytest.raises(BadRequest, match="no file"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(BadRequest, match="folder"):
        read_toml(tmp_path)


@pytest.mark.parametrize(
    "method",
    ["fedavg", "flood+scaffold@bound", "fedmr", "feddyn", "fedexp", "median", "fedprox(mu=0.5)", "fedper", "fliu"],
)
def test_a_run_toml_repeats_its_run(tmp_path, method):
    first = ud.run(method, out=tmp_path / "first", cohort=3, **SMALL)
    table = read_toml(tmp_path / "first" / "run.toml")
    parts = table.pop("parts")
    again = ud.run(table.pop("method"), parts=parts, **table, out=tmp_path / "again")
    assert again.summary["model_sha256"] == first.summary["model_sha256"]
    assert again.setup.method.parts == first.setup.method.parts
    assert again.setup.method.name == first.setup.method.name
    repeated = read_toml(tmp_path / "again" / "run.toml")
    assert repeated == read_toml(tmp_path / "first" / "run.toml")


def test_a_run_toml_holds_resolved_schedules_and_what_made_the_run(tmp_path):
    ud.run("flood", out=tmp_path / "run", **{**SMALL, "rounds": 4})
    table = tomllib.loads((tmp_path / "run" / "run.toml").read_text())
    assert any("T=2" in part for part in table["parts"])
    assert {"undrift", "torch", "python", "cpu", "federation", "layout"} <= set(table["about"])
    assert table["partition"] == "dirichlet(0.5)"


def test_an_axis_named_beside_the_parts_of_a_run_toml_replaces_theirs(tmp_path):
    ud.run("flood", out=tmp_path / "run", **SMALL)
    table = read_toml(tmp_path / "run" / "run.toml")
    changed = ud.run(table.pop("method"), parts=table.pop("parts"), **{**table, "weighting": "uniform"}, out=False)
    assert changed.setup.method.one("weighting").name == "uniform"
    assert [part.name for part in changed.setup.method.on("sampling")] == ["flood"]


def test_cohort_goes_with_uniform_selection_only():
    with pytest.raises(BadRequest, match="--cohort"):
        ud.run("fedavg", out=False, selection="all", cohort=2, **SMALL)
    with pytest.raises(BadRequest, match="two cohorts"):
        ud.run("fedavg", out=False, selection="uniform(0.5)", cohort=2, **SMALL)
