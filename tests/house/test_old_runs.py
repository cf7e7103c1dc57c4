"""A run folder that an earlier checkout wrote (before hooks and modules were renamed) is still loaded, shown, reported
and exported. `before` was written by commit 9119fd0:

undrift run --data digits --clients 4 --rounds 3 --model "mlp(8)" --method "flood(T=1)+scaffold" --personalize fliu \
    --partition "dirichlet(0.3)" --engine inline --evaluate-every 1 --out before
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import undrift as ud
from undrift.cli.app import app

OLD = Path(__file__).with_name("old")


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(OLD / "before", tmp_path / "before")
    monkeypatch.chdir(tmp_path)
    return Path("before")


def command(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_it_is_loaded_with_its_models(before):
    result = ud.load(before)
    expected = json.loads((OLD / "before.json").read_text())
    assert result.summary["model_sha256"] == expected["model_sha256"]
    assert result.accuracy == expected["accuracy"]
    x = result.setup.federation.test_x
    hits = (result.model(x).argmax(1) == result.setup.federation.test_y).double().mean().item()
    assert hits == pytest.approx(expected["accuracy"], abs=1e-12)
    outputs = [result.personal(client)(x) for client in range(4)]
    assert all(torch.isfinite(output).all() for output in outputs)
    assert not torch.equal(outputs[0], outputs[1])


def test_it_is_shown_with_the_same_numbers(before):
    found, expected = json.loads(command("show", "before", "--json")), json.loads((OLD / "before.json").read_text())
    headline = found.pop("headline")  # there was none: accuracy went without saying
    assert found == expected
    assert (headline["name"], headline["value"]) == ("accuracy", expected["accuracy"])


def test_it_is_reported_and_exported(before):
    command("report", "before", "--out", "page.html")
    assert "flood(T=1)+scaffold" in Path("page.html").read_text()
    command("export", "before", "--csv", "--out", "tables")
    assert len(Path("tables/rounds.csv").read_text().splitlines()) == 1 + 3


def test_a_finished_one_is_given_more_rounds(before):
    assert ud.resume(before, rounds=4).summary["rounds"] == 4
