"""A comparison gives all methods the same conditions, uses the cores, survives failures, and can be resumed."""

from __future__ import annotations

import atexit
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import undrift as ud
from undrift.contract.parts import Objective
from undrift.core.errors import BadRequest
from undrift.engine.spawn import cores
from undrift.study.compare import compare, comparison_folder, plan_comparison, run_comparison
from undrift.study.comparison import MethodEntry
from undrift.study.tasks import Federations, StudyCallback, Task, read_rows, run_tasks

SMALL = {"clients": 6, "rounds": 4, "model": "mlp(8)", "evaluate_every": 2}
METHODS = ["fedavg", "flood", "fedbss", "fliu", "scaffold@bound"]


@dataclass(frozen=True)
class Fatal(Objective):
    """Kills its process in the second round, as running out of memory would."""

    def gradient(self, P, G, batch, job, scratch):
        if job.round == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return G


@dataclass(frozen=True)
class Wrong(Objective):
    def gradient(self, P, G, batch, job, scratch):
        raise ArithmeticError("my own words")


class Stopper(StudyCallback):
    """Ctrl-C after `after` rounds."""

    def __init__(self, after):
        self.left = after

    def on_round(self, task, round, accuracy):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def numbers(rows):
    return [(row["method"], row["seed"], row["model_sha256"], row["accuracy"], row["stages"]) for row in rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Five methods, two seeds, without interruption, in this process."""
    return compare(METHODS, seeds=2, out=tmp_path_factory.mktemp("whole") / "all", **SMALL)


def test_all_methods_have_the_same_cohorts_and_the_same_initial_model(whole):
    for seed in (0, 1):
        runs = [ud.load(row["run"]) for row in whole.rows if row["seed"] == seed]
        assert len(runs) == len(METHODS)
        cohorts = [run.rows("SELECT round, cohort FROM rounds ORDER BY round") for run in runs]
        assert all(cohort == cohorts[0] for cohort in cohorts)
        assert all(torch.equal(run.setup.runtime.initial, runs[0].setup.runtime.initial) for run in runs)
        assert len({run.setup.federation.fingerprint for run in runs}) == 1
    assert len({row["model_sha256"] for row in whole.rows}) == 2 * len(METHODS)


def test_rows_are_in_the_order_of_the_methods_and_have_the_seconds_of_client_and_server(whole):
    assert [(row["method"], row["seed"]) for row in whole.rows] == [(m, s) for s in (0, 1) for m in METHODS]
    assert all(row["times"]["client"] > 0 and row["times"]["server"] > 0 for row in whole.rows)


def test_runs_in_processes_give_the_same_numbers(whole, tmp_path):
    comparison = plan_comparison([MethodEntry(m) for m in METHODS], {**SMALL, "workers": 2}, 2, None, {})
    pooled = run_comparison(comparison, comparison_folder(comparison, tmp_path / "pool", resume=False))
    assert numbers(pooled.rows) == numbers(whole.rows)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_comparison_resumes_to_the_same_numbers(whole, tmp_path, workers):
    options = {**SMALL, "workers": workers, "seeds": 2, "out": tmp_path / "cut"}
    with pytest.raises(KeyboardInterrupt, match="--resume"):
        compare(METHODS, callback=Stopper(after=9), **options)
    assert len(read_rows(tmp_path / "cut")) < 10
    again = compare(METHODS, resume=True, **options)
    assert numbers(again.rows) == numbers(whole.rows)


def test_resuming_can_add_seeds_and_methods_but_not_change_them(whole, tmp_path):
    first = compare(METHODS[:2], out=tmp_path / "c", **SMALL)
    more = compare(METHODS[:3], seeds=2, out=tmp_path / "c", resume=True, **SMALL)
    assert numbers(first.rows) == numbers(more.rows[:2])
    assert numbers(more.rows) == [n for n in numbers(whole.rows) if n[0] in METHODS[:3]]
    with pytest.raises(BadRequest, match="options"):
        compare(METHODS[:2], out=tmp_path / "c", resume=True, **{**SMALL, "rounds": 5})
    with pytest.raises(BadRequest, match="in this order"):
        compare(METHODS[1:2], out=tmp_path / "c", resume=True, **SMALL)
    with pytest.raises(BadRequest, match="seed 1 ran on another federation"):
        compare(METHODS[:3], repeat=2, out=tmp_path / "c", resume=True, **SMALL)


def test_a_comparison_of_objects_is_resumed_in_python(tmp_path):
    methods = ["fedavg", ud.method("fedprox", ud.weighting.bound()), ud.weighting.uniform()]
    with pytest.raises(KeyboardInterrupt):
        compare(methods, out=tmp_path / "c", callback=Stopper(after=6), **SMALL)
    done = compare(methods, out=tmp_path / "c", resume=True, **SMALL)
    assert numbers(done.rows) == numbers(compare(methods, out=tmp_path / "d", **SMALL).rows)


def test_a_failed_run_is_marked_and_the_others_finish(tmp_path):
    done = compare(["fedavg", Wrong(), "fedprox"], out=tmp_path / "c", **SMALL)
    assert ["failed" in row for row in done.rows] == [False, True, False]
    assert "my own words" in done.rows[1]["failed"]
    assert done.rows[1]["accuracy"] is None
    assert "failed" in str(done)


def test_a_process_that_dies_is_replaced_and_its_run_is_marked_as_failed(tmp_path):
    methods = ["fedavg", Fatal(), "fedprox", "fedavg-uniform"]
    done = compare(methods, out=tmp_path / "c", workers=2, **SMALL)
    assert ["failed" in row for row in done.rows] == [False, True, False, False]
    assert "signal 9" in done.rows[1]["failed"]


@dataclass(frozen=True)
class Farewell(Objective):
    """Leaves a file when its process ends."""

    path: str = ""

    def before_training(self, job, state, server_message):
        atexit.register(Path(self.path).write_text, "goodbye")


def test_what_shall_happen_at_the_end_of_a_process_happens(tmp_path):
    compare(["fedavg", Farewell(str(tmp_path / "file"))], out=tmp_path / "c", workers=2, **SMALL)
    assert (tmp_path / "file").read_text() == "goodbye"


def test_fewer_runs_than_cores_share_the_cores(tmp_path):
    plans = []

    class SeePlan(StudyCallback):
        def on_start(self, tasks, plan, at_once):
            plans.append(plan)

    tasks = [Task(name, name, {**SMALL, "seed": 0}, {"method": name, "seed": 0}) for name in ("fedavg", "fedprox")]
    rows, _ = run_tasks(tasks, tmp_path, Federations(), SeePlan(), cores=4, together=True)
    assert plans == ["2 runs at a time, each on 2 workers"]
    assert [row["method"] for row in rows] == ["fedavg", "fedprox"]


def test_a_part_that_gives_way_is_reported_before_the_first_round(tmp_path):
    sentences = []

    class SeeMessages(StudyCallback):
        def on_message(self, sentence):
            sentences.append(sentence)

    compare(["fedavg", "flood@uniform"], out=tmp_path / "c", callback=SeeMessages(), **SMALL)
    assert any(sentence.startswith("flood@uniform: ") and "gives way" in sentence for sentence in sentences)


def test_undrift_cores_sets_the_number_of_cores(monkeypatch):
    monkeypatch.setenv("UNDRIFT_CORES", "3")
    assert cores() == 3


def test_a_grid_chooses_per_method_on_validation_data_and_all_seeds_use_the_choice(tmp_path):
    done = compare(
        ["fedavg", ("fedprox", {"lr": 0.02})],
        grid={"lr": [1e-6, 0.1]},
        seeds=2,
        validation=0.2,
        out=tmp_path / "g",
        **SMALL,
    )
    tried = [(row["method"], row.get("chosen")) for row in done.tried]
    assert tried == [
        ("fedavg lr=1e-06", {"lr": 1e-6}),
        ("fedavg lr=0.1", {"lr": 0.1}),
        ("fedprox lr=0.02", None),
    ]
    scores = [row["stages"]["G"]["validation_accuracy"] for row in done.tried[:2]]
    assert scores[1] > scores[0]
    assert [row.get("chosen") for row in done.rows] == [{"lr": 0.1}, None, {"lr": 0.1}, None]
    assert len(read_rows(tmp_path / "g")) == 5


def test_a_given_federation_is_used_by_all_runs(tmp_path):
    federation = ud.federate("digits", "dirichlet(0.5)", clients=6, seed=3)
    done = compare(["fedavg", "fedprox"], federation, repeat=2, out=tmp_path / "c", rounds=2, model="mlp(8)")
    assert {ud.load(row["run"]).setup.federation.fingerprint for row in done.rows} == {federation.fingerprint}
    with pytest.raises(BadRequest, match="repeat"):
        compare(["fedavg"], federation, seeds=2, out=tmp_path / "d")


@pytest.mark.parametrize(
    ("methods", "options", "word"),
    [
        (["fedavg"], {"grid": {"lr": [0.1]}}, "validation"),
        (["fedavg"], {"grid": {"rate": [0.1]}, "validation": 0.1}, "rate"),
        (["fedper"], {"grid": {"lr": [0.1]}, "validation": 0.1}, "no global model"),
        (["fedavg", "fedavg"], {}, "twice"),
        (["fedavg", "--lr", "1", "--rounds", "1"], {}, "'--lr' is taken for a method; options come before a lone --"),
        ([("fedavg", {"seed": 1})], {}, "--seed"),
        (["fedavg"], {"seeds": 2, "repeat": 2}, "--repeat"),
        (["fedavg"], {"seeds": 0}, "--seeds must be a whole number between 1 and 10,000, not 0"),
        ([], {}, "at least one method"),
        (["fedavg", "fedagv"], {}, "fedavg"),
        (["fedavg", "flood+bound"], {}, "bound"),
    ],
)
def test_bad_settings_are_refused_before_the_first_round(tmp_path, methods, options, word):
    with pytest.raises(BadRequest, match=word):
        compare(methods, out=tmp_path / "c", **{**SMALL, **options})
    assert not list((tmp_path).glob("c/*/run.toml"))
