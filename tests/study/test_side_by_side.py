"""Runs of a comparison that share stacks: each has the record that it has alone, whatever happens to the others."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from undrift.contract.parts import Objective
from undrift.engine.side_by_side import side_by_side
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import prepare
from undrift.store.record import rows_of
from undrift.store.run_store import RunStore
from undrift.store.server_state import ServerState
from undrift.study import bundles, tasks
from undrift.study.bundles import bundled, fitting
from undrift.study.compare import compare
from undrift.study.tasks import StudyCallback, Task, read_rows

SMALL = {"clients": 6, "rounds": 4, "epochs": 1, "model": "mlp(8)", "evaluate_every": 2, "cohort": 3}
METHODS = ["fedavg", "fednolowe", "scaffold@bound", "ditto", "fedsam"]  # fedsam: one by one
GLOBAL = ["fedavg", "fednolowe", "scaffold@bound", "fedprox"]
TABLES = ("metrics", "notes", "events", "states", "clients")


def record(run):
    """All that a run recorded but its times."""
    found = {table: rows_of(Path(run), f"SELECT * FROM {table} ORDER BY rowid") for table in TABLES}
    states = sorted((checkpoint, client, digest) for checkpoint, _, client, _, _, _, _, digest in found["states"])
    found["states"] = {
        client: digest for _, client, digest in states
    }  # the newest: earlier checkpoints come by the clock
    return found | {"rounds": rows_of(Path(run), "SELECT round, lr, cohort FROM rounds")}


def records(compared):
    return {
        Path(row["run"]).name: record(row["run"]) for row in (*compared.tried, *compared.rows) if "failed" not in row
    }


@pytest.fixture
def alone(monkeypatch):
    """Call it, and from then on every run is alone."""
    return lambda: monkeypatch.setattr(bundles, "bundled", lambda all_of_them, cores: [[task] for task in all_of_them])


class Plans(StudyCallback):
    def __init__(self):
        self.said = []

    def on_start(self, tasks, plan, at_once):
        self.said.append(plan)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_record_is_that_of_a_run_alone(tmp_path, alone, workers, monkeypatch):
    # How runs are spread follows from it, and a busy machine would time them otherwise.
    monkeypatch.setattr("undrift.experiment.engines.expected_seconds", lambda setup: 0.01)
    options = {**SMALL, "seeds": 3, "grid": {"lr": [0.02, 0.1]}, "validation": 0.2}
    plans = Plans()
    beside = compare(GLOBAL, out=tmp_path / "beside", workers=workers, callback=plans, **options)
    assert all("side by side" in plan for plan in plans.said)
    alone()
    one_by_one = compare(GLOBAL, out=tmp_path / "alone", callback=plans, **options)
    assert plans.said[2:] == ["one run after another"] * 2
    assert records(beside) == records(one_by_one)


class Stopper(StudyCallback):
    """Ctrl-C after `left` rounds."""

    def __init__(self, left):
        self.left = left

    def on_round(self, task, round, headline):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [pytest.param(1, marks=pytest.mark.slow), 7])
def test_ctrl_c_loses_no_round_of_any_run(tmp_path, alone, after):
    with pytest.raises(KeyboardInterrupt, match="--resume"):
        compare(METHODS, seeds=2, out=tmp_path / "cut", callback=Stopper(after), **SMALL)
    started = [folder for folder in (tmp_path / "cut").iterdir() if folder.is_dir()]
    kept = [rows_of(folder, "SELECT COUNT(*) FROM rounds")[0][0] for folder in started]
    assert sum(kept) >= after
    again = compare(METHODS, seeds=2, out=tmp_path / "cut", resume=True, **SMALL)
    alone()
    whole = compare(METHODS, seeds=2, out=tmp_path / "whole", **SMALL)
    found, wanted = records(again), records(whole)
    for each in found.values():  # that it was resumed is an event of its own
        each["events"] = [event for event in each["events"] if event[2] != "resumed"]
    assert found == wanted


@dataclass(frozen=True)
class Unlucky(Objective):
    """Fails the run of seed 1 in its second round: by an error, or with its process."""

    how: str = "error"
    lockstep: ClassVar = True

    def gradient(self, P, G, batch, job, scratch) -> None:
        if (job.plan.seed, job.round) == (1, 1):
            if self.how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ArithmeticError("my own words")


@pytest.mark.parametrize(
    ("how", "workers"), [("error", 1), pytest.param("error", 2, marks=pytest.mark.slow), ("killed", 2)]
)
def test_a_run_that_fails_leaves_the_others_alone(tmp_path, how, workers):
    own = {**SMALL, "seeds": 5}
    done = compare([Unlucky(how)], out=tmp_path / "one", workers=workers, **own)
    assert ["failed" in row for row in done.rows] == [False, True, False, False, False]
    assert ("signal 9" if how == "killed" else "my own words") in done.rows[1]["failed"]
    plain = compare(["fedavg"], out=tmp_path / "plain", **own)
    same = [row["model_sha256"] for row in plain.rows]
    assert [row["model_sha256"] for row in done.rows] == [same[0], None, *same[2:]]


def test_every_run_stops_where_it_stops_alone(tmp_path, alone):
    own = {**SMALL, "seeds": 4, "validation": 0.2, "stop_at": 0.35, "rounds": 12, "lr": 0.1}
    beside = compare(["fedavg"], out=tmp_path / "beside", **own)
    alone()
    assert records(compare(["fedavg"], out=tmp_path / "alone", **own)) == records(beside)
    assert len({row["rounds"] for row in beside.rows}) > 1


def task(name, seconds=1.0, alike="", beside=1, seed=0):
    return Task(name, "fedavg", {}, {"seed": seed}, seconds, alike=alike, beside=beside)


def test_a_bundle_has_what_fits_a_stack_and_no_more_than_one_cores_share():
    ten = [task(f"t{seed}", 1.0, "a", 20, seed) for seed in range(10)]
    names = lambda found: [[one.name for one in bundle] for bundle in found]  # noqa: E731
    assert names(bundled(ten, 1)) == [[one.name for one in ten]]
    assert [len(bundle) for bundle in bundled(ten, 2)] == [5, 5]
    assert [len(bundle) for bundle in bundled([task(f"t{n}", 1.0, "a", 4) for n in range(10)], 1)] == [4, 3, 3]
    assert [len(bundle) for bundle in bundled([task(f"t{n}") for n in range(3)], 2)] == [1, 1, 1]
    mixed = [task("long", 5.0), *(task(f"b{n}", 0.1, "b", 9) for n in range(4)), task("c", 1.0, "c", 9)]
    assert names(bundled(mixed, 1)) == [["long"], ["c"], ["b0", "b1", "b2", "b3"]]
    assert names(bundled(mixed, 2)) == [["long"], ["c"], ["b0", "b1"], ["b2", "b3"]]  # the last ones in halves
    many = bundled([task(f"t{n}", 1.0, "a", 4) for n in range(20)], 2)
    assert [len(bundle) for bundle in many] == [4, 4, 4, 2, 2, 2, 2]
    assert bundled([], 2) == []


def test_what_shares_a_stack():
    def found(**options):
        return fitting(prepare(from_keywords({"data": "digits", "clients": 10, "out": False, **options})))

    plain, many = found()
    assert many > 5
    for same in ({"seed": 3}, {"lr": 0.3}, {"rounds": 5}, {"epochs": 3}, {"method": "fednolowe"}, {"partition": "iid"}):
        assert found(**same)[0] == plain
    for other in ({"method": "fedprox"}, {"batch": 16}, {"momentum": 0.5}, {"model": "mlp(99)"}, {"clip": 1.0}):
        assert found(**other)[0] not in ("", plain)
    assert found(method="fedprox(mu=0.1)")[0] != found(method="fedprox(mu=0.2)")[0]
    assert found(method="fedsam") == found(lockstep="off") == found(engine="processes") == ("", 1)
    assert found(lockstep="on(bytes=1)")[1] == 1  # a cohort fills more than a stack


def test_an_error_of_the_study_stops_every_run_before_it_is_raised(tmp_path):
    class Broken(StudyCallback):
        def on_row(self, task, row):
            raise RuntimeError("no more rows")

    with pytest.raises(RuntimeError, match="no more rows"):
        compare(["fedavg"], seeds=3, out=tmp_path / "c", callback=Broken(), **SMALL)
    assert compare(["fedavg"], seeds=3, out=tmp_path / "c", resume=True, **SMALL).rows[2]["rounds"] == 4
    assert len(read_rows(tmp_path / "c")) == 3


def test_the_runs_end_when_they_are_stopped_in_the_middle():
    ended = []

    def endless(engine):
        engine.open(prepared.runtime, prepared.runtime)
        try:
            while True:
                engine.calls.append(lambda: None if len(ended) < 3 else interrupt())
                list(engine.map([]))
                engine.asked.put([])
                if engine.answers.get() is None:
                    raise KeyboardInterrupt
                ended.append("turn")
        finally:
            ended.append("end")

    def interrupt():
        raise KeyboardInterrupt

    prepared = prepare(from_keywords({"data": "digits", "clients": 4, "out": False}))
    with pytest.raises(KeyboardInterrupt):
        side_by_side([endless, endless], lambda number, how: None)
    assert ended.count("end") == 2


def test_the_seconds_of_a_run_are_its_own(tmp_path):
    done = compare(["fedavg"], seeds=4, out=tmp_path / "c", **SMALL)
    assert sum(row["seconds"] for row in done.rows) <= done.seconds


def test_checkpoints_take_a_twentieth_of_a_runs_own_time(tmp_path, monkeypatch):
    """Twenty runs in one process: each has a twentieth of its time, and all checkpoints together take what those of one
    run would take. After thirty seconds of anybody's time one is written."""
    now = [100.0]
    monkeypatch.setattr("undrift.store.run_store.time.monotonic", lambda: now[0])
    store = RunStore(tmp_path / "run")
    state = ServerState(0, torch.zeros(3), torch.zeros(3), {}, {}, {})
    store.checkpoint(state, wait=True)
    store._cost = 0.01
    now[0] += 1.0
    assert store.due(state)
    assert not store.due(state, elsewhere=0.9)
    assert store.due(state, elsewhere=0.7)
    store.checkpoint(state, wait=True, elsewhere=0.7)
    store._cost = 0.01
    now[0] += 1.0
    assert not store.due(state, elsewhere=1.6)
    assert store.due(state, elsewhere=1.4)
    now[0] += 29.0
    assert store.due(state, elsewhere=30.6)
    store.close()


def test_options_are_checked_once_for_each_federation(monkeypatch):
    """A pool asks for the federations of all tasks again and again."""
    checked = []
    monkeypatch.setattr(tasks, "from_keywords", lambda given: checked.append(given) or from_keywords(given))
    federations = tasks.Federations()
    asked = [{"data": "digits", "clients": 5, "seed": seed, "lr": lr} for seed in range(3) for lr in (0.1, 0.2)]
    keys = [[federations.key(settings) for settings in asked] for _ in range(100)]
    assert len(checked) == 3
    assert keys[0] == keys[99]
    assert [keys[0].index(key) for key in keys[0]] == [0, 0, 2, 2, 4, 4]
    assert federations.key({"data": "digits", "clients": 5, "seed": 9, "data_seed": 1}) == keys[0][2]
