"""A run.toml whose method and parts do not agree would run one method under the name of another."""

from __future__ import annotations

from pathlib import Path

import pytest

import undrift as ud
from undrift.cli import command
from undrift.methods import objectives, weighting

QUICK = {"rounds": 1, "epochs": 1, "clients": 3, "model": "mlp(4)", "engine": "inline"}


@pytest.fixture
def edited(tmp_path, monkeypatch):
    """Writes a run and replaces a line's value in its run.toml. Returns the folder."""
    monkeypatch.chdir(tmp_path)

    def write(method, old, new, **options):
        ud.run(method, out="run", **QUICK, **options)
        text = (tmp_path / "run" / "run.toml").read_text()
        assert old in text
        (tmp_path / "run" / "run.toml").write_text(text.replace(old, new, 1))
        return "run"

    return write


@pytest.mark.parametrize(
    ("method", "old", "new"),
    [
        ("fedavg", 'method = "fedavg"', 'method = "scaffold"'),
        ("fedavg", 'method = "fedavg"', 'method = "²"'),
        ("fedprox(mu=0.1)", 'method = "fedprox(mu=0.1)"', 'method = "fedprox(mu=5)"'),
        ("fedprox(mu=0.1)", "objective.fedprox(mu=0.1,", "objective.fedprox(mu=5,"),
    ],
)
def test_a_method_edited_without_its_parts_is_refused(edited, capsys, method, old, new):
    run = edited(method, old, new)
    for words in (["run", run, "--out", "again"], ["resume", run, "--rounds", "2"]):
        assert command(words) == 2
        said = capsys.readouterr().err
        assert "method is" in said
        assert "server.replace()" in said


def test_method_and_parts_edited_alike_are_repeated(edited, capsys):
    run = edited("fedprox(mu=0.1)", "mu=0.1", "mu=5")
    path = Path(run, "run.toml")
    path.write_text(path.read_text().replace("mu=0.1", "mu=5"))
    assert command(["run", run, "--out", "again", "--quiet"]) == 0
    assert command(["resume", run, "--rounds", "2"]) == 2  # its states are those of the old method


def test_a_method_given_again_replaces_both(edited):
    run = edited("fedavg", 'method = "fedavg"', 'method = "scaffold"')
    assert command(["run", run, "--method", "scaffold", "--out", "again", "--quiet"]) == 0


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (objectives.fedprox(mu=0.3), {}),
        ("fedavg", {"weighting": weighting.bound(radius=0.2)}),
        (ud.method("fedprox", name="mine"), {}),
    ],
)
def test_names_without_parameters_are_repeated_and_resumed_as_before(edited, method, options):
    run = edited(method, "rounds = 1", "rounds = 2", **options)
    assert command(["run", run, "--out", "again", "--quiet"]) == 0
    assert command(["resume", run, "--quiet"]) == 0
