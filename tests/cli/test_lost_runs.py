"""Runs that were stopped or lost: they keep their goal, and nothing that failed looks like a result."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import undrift as ud
from undrift.experiment.callback import RunCallback

LOST = ("--lr", "1e30", "--quiet")


class StopAt(RunCallback):
    def __init__(self, round):
        self.stop = round

    def on_round(self, round, *about):
        if round == self.stop:
            raise KeyboardInterrupt


def test_a_resumed_run_that_is_stopped_keeps_its_new_rounds(undrift, finished):
    with pytest.raises(KeyboardInterrupt):
        ud.resume("first", rounds=6, callback=StopAt(3))
    assert tomllib.loads(Path("first/run.toml").read_text())["rounds"] == 6
    assert undrift("runs", ".", "--json").json[0]["of"] == 6
    straight = undrift("run", "--clients", "5", "--rounds", "6", "--model", "mlp(8)", "--json", "--quiet").json
    again = undrift("resume", "first", "--json", "--quiet")
    assert again.code == 0
    assert again.json["rounds"] == 6
    assert again.json["model_sha256"] == straight["model_sha256"]


def test_a_run_that_is_not_resumed_keeps_its_run_toml(undrift, finished):
    before = Path("first/run.toml").read_bytes()
    assert undrift("resume", "first", "--rounds", "1").code == 2
    assert undrift("resume", "first", "--rounds", "2").code == 0
    assert Path("first/run.toml").read_bytes() == before


def test_a_run_that_lost_every_client_fails_with_a_sentence(undrift, small):
    lost = undrift("run", *small, *LOST, "--out", "lost")
    assert lost.code == 1
    assert "every client was left out in all 2 rounds" in lost.sentence
    again = undrift("resume", "lost", "--quiet", "--rounds", "3")
    assert again.code == 1
    assert "all 3 rounds" in again.sentence
    assert undrift("run", *small, "--faults", "nan(0.5)", "--quiet").code == 0  # some are left: a result


def test_a_comparison_whose_runs_all_failed_fails_with_a_sentence(undrift, small):
    lost = undrift("compare", "fedavg", "fedprox", *small, *LOST)
    assert lost.code == 1
    assert "every run failed" in lost.err.splitlines()[-1]
    some = undrift("compare", "fedavg", "fedprox --lr 1e30", *small, "--quiet", "--json")
    assert some.code == 1
    assert "1 of 2 runs failed" in some.err.splitlines()[-1]
    assert ["failed" in row for row in some.json["rows"]] == [False, True]


def test_a_grid_never_chooses_a_run_that_lost_every_client(undrift, small):
    done = undrift("compare", "fedavg", *small, "--grid", "lr=1e30,0.000001", "--validation", "0.2", "--json")
    assert done.json["rows"][0]["chosen"] == {"lr": 1e-6}
