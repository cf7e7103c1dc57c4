"""Minutes of presets: computed from kept runs by hand-checked numbers, and marked where they are estimates."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from undrift.cli.app import app
from undrift.papers import papers
from undrift.papers.minutes import Minutes, minutes, seconds_of_commands, seconds_of_rounds
from undrift.papers.scales import scaled

NAME = "flood/table4"  # at quick scale two columns, two seeds


def line(column: str, seconds: float, rounds: int, date: str) -> dict[str, object]:
    return {"preset": NAME, "scale": "quick", "column": column, "seconds": seconds, "rounds": rounds, "date": date}


def test_of_a_column_the_mean_of_the_newest_day_counts() -> None:
    old, new = "2026-01-01", "2026-02-01"
    lines = [line("a", 60.0, 10, old), line("a", 10.0, 10, new), line("a", 20.0, 10, new), line("b", 4.0, 8, old)]
    assert seconds_of_rounds(lines) == {NAME: {"quick": {"a": 1.5, "b": 0.5}}}


def test_minutes_are_rows_times_seeds_times_rounds_on_two_cores() -> None:
    preset = papers.load(NAME)
    asked = scaled(preset, "quick")
    first, second = (column.name for column in asked.columns)
    found = minutes(preset, "quick", {"rounds": {NAME: {"quick": {first: 0.2, second: 0.4}}}})
    assert found is not None
    assert found.measured
    by_hand = (0.2 + 0.4) * len(asked.rows) * len(asked.seeds) * asked.options["rounds"] / 60 / 2
    assert found.minutes == pytest.approx(by_hand)


def test_a_column_without_kept_runs_makes_it_an_estimate() -> None:
    preset = papers.load(NAME)
    found = minutes(preset, "quick", {"rounds": {NAME: {"quick": {"Path 2": 0.2}}}})
    assert found is not None
    assert (found.minutes, found.measured) == (preset.minutes("quick"), False)


def test_presets_that_share_runs_share_what_was_measured() -> None:
    preset = papers.load("bound/figure2")
    assert preset.runs == "bound/figure3"
    known = {"bound/figure3": {"quick": {column.name: 1.0 for column in preset.columns}}}
    found = minutes(preset, "quick", {"rounds": known})
    assert found is not None
    assert found.measured
    assert minutes(preset, "quick", {"rounds": known, "commands": {"bound/figure3": 90.0}}) == Minutes(1.5, True)


def test_a_command_counts_that_was_measured_with_all_its_cells() -> None:
    asked = scaled(papers.load(NAME), "quick")
    cells = len(asked.rows) * len(asked.columns)
    found = [{"preset": NAME, "cells": cells, "new": 30.0}, {"preset": "flood/table5", "cells": 1, "new": 2.0}]
    assert seconds_of_commands(found) == {NAME: 30.0}
    known = {"commands": {NAME: 30.0}, "rounds": {NAME: {"quick": {column.name: 9.0 for column in asked.columns}}}}
    assert minutes(papers.load(NAME), "quick", known) == Minutes(0.5, True)
    estimate = minutes(papers.load(NAME), "mid", known)
    assert estimate is not None
    assert not estimate.measured


def test_the_list_marks_estimates() -> None:
    lines = CliRunner().invoke(app, ["paper", "list"]).stdout.splitlines()
    found = {one["name"]: one for one in json.loads(CliRunner().invoke(app, ["paper", "list", "--json"]).stdout)}
    shown = {line.split()[0]: line for line in lines if line.split() and line.split()[0] in found}
    assert shown.keys() == found.keys()
    for name, one in found.items():
        estimates = sum(one[f"{s}_minutes"] is not None and s not in one["measured"] for s in ("quick", "mid", "paper"))
        assert shown[name].count("~") == estimates, name
