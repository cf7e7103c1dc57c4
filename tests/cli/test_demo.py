"""The demo repeats itself, whatever became of the last one, and takes nobody else's runs away."""

from __future__ import annotations

from pathlib import Path

import pytest

from undrift.cli import demo


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(demo, "SETTINGS", {**demo.SETTINGS, "rounds": 2, "epochs": 1})
    monkeypatch.setattr(demo, "SEEDS", 1)


def test_it_shows_who_holds_what_and_every_method_and_can_be_repeated(undrift, tiny):
    said = undrift("demo", "--json")
    assert said.code == 0, said.err
    for words in ("three labels in ten are wrong", *(f"\n{method} " for method in demo.METHODS)):
        assert words in said.err
    Path("runs/demo/index.html").unlink()  # one that was stopped
    (Path("runs/demo") / "00-fedavg-seed0" / "run.sqlite").unlink()
    again = undrift("demo", "--json", "--quiet").json["rows"]
    assert [row["model_sha256"] for row in again] == [row["model_sha256"] for row in said.json["rows"]]
    assert Path("runs/demo/index.html").exists()


def test_another_comparison_in_its_place_is_left_alone(undrift, tiny, small):
    assert undrift("compare", "fedavg", "fedprox", *small, "--out", "mine", "--quiet").code == 0
    before = Path("mine/rows.jsonl").read_text()
    said = undrift("demo", "--out", "mine")
    assert said.code == 2
    assert "taken" in said.sentence
    assert Path("mine/rows.jsonl").read_text() == before


def test_rounds_make_it_shorter_or_longer(undrift, tiny):
    said = undrift("demo", "--rounds", "1", "--json", "--quiet")
    assert said.code == 0, said.err
    assert {row["rounds"] for row in said.json["rows"]} == {1}


def test_a_bad_number_of_rounds_leaves_the_last_demo_where_it_is(undrift, tiny):
    assert undrift("demo", "--rounds", "1", "--quiet").code == 0
    for bad in ("0", "many"):
        said = undrift("demo", "--rounds", bad)
        assert said.code == 2
        assert "--rounds" in said.sentence
        assert Path("runs/demo/index.html").exists()
