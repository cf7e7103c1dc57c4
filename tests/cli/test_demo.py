"""The demo can be repeated after any earlier demo, and never removes other runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from undrift.cli import demo


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(demo, "SETTINGS", {**demo.SETTINGS, "rounds": 2, "epochs": 1})
    monkeypatch.setattr(demo, "SEEDS", 1)


def test_it_shows_the_partition_and_every_method_and_can_be_repeated(undrift, tiny):
    result = undrift("demo", "--json")
    assert result.code == 0, result.err
    for words in ("three labels in ten are wrong", *(f"\n{method} " for method in demo.METHODS)):
        assert words in result.err
    Path("runs/demo/index.html").unlink()  # as if it had been stopped
    (Path("runs/demo") / "00-fedavg-seed0" / "run.sqlite").unlink()
    again = undrift("demo", "--json", "--quiet").json["rows"]
    assert [row["model_sha256"] for row in again] == [row["model_sha256"] for row in result.json["rows"]]
    assert Path("runs/demo/index.html").exists()


def test_another_comparison_in_its_folder_is_left_alone(undrift, tiny, small):
    assert undrift("compare", "fedavg", "fedprox", *small, "--out", "mine", "--quiet").code == 0
    before = Path("mine/rows.jsonl").read_text()
    result = undrift("demo", "--out", "mine")
    assert result.code == 2
    assert "taken" in result.sentence
    assert Path("mine/rows.jsonl").read_text() == before


def test_rounds_make_it_shorter_or_longer(undrift, tiny):
    result = undrift("demo", "--rounds", "1", "--json", "--quiet")
    assert result.code == 0, result.err
    assert {row["rounds"] for row in result.json["rows"]} == {1}


def test_a_bad_number_of_rounds_keeps_the_last_demo(undrift, tiny):
    assert undrift("demo", "--rounds", "1", "--quiet").code == 0
    for bad in ("0", "many"):
        result = undrift("demo", "--rounds", bad)
        assert result.code == 2
        assert "--rounds" in result.sentence
        assert Path("runs/demo/index.html").exists()


def test_a_demo_whose_runs_are_all_lost_fails(undrift, tiny, monkeypatch):
    """On a full disk it printed an empty table and ended with 0."""
    monkeypatch.setattr(demo, "METHODS", demo.METHODS[:2])
    monkeypatch.setattr(demo, "SETTINGS", {**demo.SETTINGS, "clients": 4, "lr": 1e30})
    lost = undrift("demo", "--quiet")
    assert lost.code == 1
    assert "every run failed" in lost.err.splitlines()[-1]
