"""A preset of another task than classification: its values and claims are those of the headline."""

from __future__ import annotations

import json
import tomllib

import pytest

from undrift.papers import claims, papers, results
from undrift.papers import run as paper_run
from undrift.papers import table as paper_table
from undrift.papers.scales import scaled

PRICES = """
title = "t"
source = "s"
repeat = 3
options = { data = "diabetes", partition = "iid", clients = 3, model = "logistic", rounds = 10, batch = 16, cohort = 1.0 }
rows = [{ name = "small", method = "fedavg", options = { lr = 0.0001 } }, { name = "large", method = "fedavg" }]
values = [{ name = "last", window = 0.1 }, { name = "rounds", take = "rounds_until", target = 65.0, factor = 1.0 }]
claims = [
  { sentence = "A larger rate has the smaller error", below = ["large", "small"] },
  { sentence = "It is reached in fewer rounds", below = ["large", "small"], value = "rounds" },
]
quick = { minutes = 1 }
"""


def test_a_preset_of_another_task_claims_its_headline(tmp_path):
    prices = papers.parse("a/prices", tomllib.loads(PRICES))
    assert (prices.headline.name, prices.values[0].metric, prices.values[0].factor) == ("rmse", "rmse", 1.0)
    asked = scaled(prices, "quick", seeds=3)
    rows, _ = paper_run.run(asked, tmp_path / "runs", results=tmp_path / "lines.jsonl")
    assert [one.outcome for one in claims.outcomes(prices, rows)] == ["true", "true"]
    (name, table), _ = paper_table.tables(prices, rows)
    small, large = (float(line[1].split(" ")[0]) for line in table[1:])
    assert (name, 50 < large < small < 120) == ("last", True)
    line = json.loads((tmp_path / "lines.jsonl").read_text().splitlines()[0])
    assert (line["accuracy"], line["headline"]["name"]) == (None, "rmse")
    assert line["curve"][-1] == pytest.approx(line["headline"]["value"], abs=1e-3)
    assert results.recomputed(prices, line)["last"] == pytest.approx(line["values"]["last"], rel=1e-5)
