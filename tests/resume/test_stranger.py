"""A run folder that somebody else made runs no code and touches no file outside it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

import undrift as ud
from undrift.cli import command
from undrift.core.errors import BadRequest

QUICK = {"rounds": 2, "epochs": 1, "clients": 3, "engine": "inline"}
NETWORK = """
import torch
def make(shape, classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes))
def loss(logits, y):
    return torch.nn.functional.cross_entropy(logits, y, reduction="none")
def hits(logits, y):
    return (logits.argmax(1) == y).float().mean().item()
"""
TRAP = "from pathlib import Path\nPath('ran').write_text('')\n"


def forget() -> None:
    """As if the code had never been imported."""
    Path("ran").unlink()
    sys.modules.pop("planted")


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A run that names code, in a folder where that code leaves a mark when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("planted.py").write_text(NETWORK + TRAP)

    def run(**options):
        result = ud.run("fedavg", out="run", **{**QUICK, "model": "planted:make", **options})
        forget()
        return result

    yield run
    sys.modules.pop("planted", None)


@pytest.mark.parametrize("option", [{}, {"model": "mlp(4)", "loss": "planted:loss"}, {"metrics": "planted:hits"}])
def test_reading_a_run_imports_no_code_that_it_names(option, planted, capsys):
    before = planted(**option)
    for words in (["show", "run"], ["show", "run", "--json"], ["show", "run", "--traces", "--html", "page.html"],
                  ["report", "run"], ["export", "run"], ["runs", "."]):  # fmt: skip
        assert command(words) == 0, capsys.readouterr().err
    shown = ud.load("run")
    assert shown.summary == before.summary | {"run": "run"}
    assert not Path("ran").exists()


def test_the_model_of_a_network_of_the_users_own_asks_for_it_or_for_trust(planted):
    before = planted()
    loaded = ud.load("run")
    assert torch.equal(loaded.vector, before.vector)
    assert loaded.traces() is not None
    for use in (lambda: loaded.model, lambda: loaded.personal(0), lambda: loaded.setup):
        with pytest.raises(BadRequest, match=r"planted:make.*model=.*trust=True"):
            use()
    assert not Path("ran").exists()

    def given(shape, classes):
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes))

    x = torch.zeros(1, 1, 8, 8)
    assert torch.equal(ud.load("run", model=given).model(x), before.model(x))
    assert not Path("ran").exists()
    assert torch.equal(ud.load("run", trust=True).model(x), before.model(x))
    assert Path("ran").exists()


def test_resume_imports_it_only_when_it_is_trusted(planted, capsys):
    planted()
    assert command(["resume", "run", "--rounds", "3"]) == 2
    said = capsys.readouterr().err
    assert "planted:make" in said
    assert "--trust" in said
    with pytest.raises(BadRequest, match=r"planted:make.*--trust"):
        ud.resume("run", rounds=3)
    assert not Path("ran").exists()
    assert command(["resume", "run", "--rounds", "3", "--trust", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 3
    assert Path("ran").exists()


@pytest.mark.parametrize("answer", [True, False])
def test_resume_asks_at_a_terminal(answer, planted, monkeypatch, capsys):
    planted()
    asked = []
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question, **more: asked.append(question) or answer)
    assert command(["resume", "run", "--rounds", "3", "--quiet"]) == (0 if answer else 2)
    assert ["planted:make" in question for question in asked] == [True]
    assert Path("ran").exists() == answer


def test_a_run_of_undrifts_own_code_needs_no_trust(tmp_path):
    ud.run("scaffold", out=tmp_path / "run", model="mlp(4)", **QUICK)
    assert ud.resume(tmp_path / "run", rounds=3).summary["rounds"] == 3


def test_a_comparison_that_names_code_is_resumed_only_when_it_is_trusted(planted, capsys):
    words = [
        "compare",
        "fedavg",
        "--model",
        "planted:make",
        "--rounds",
        "1",
        "--clients",
        "3",
        "--epochs",
        "1",
        "--quiet",
    ]
    assert command([*words, "--out", "many"]) == 0
    forget()
    assert command(["compare", "--resume", "many", "--quiet"]) == 2
    assert "planted:make" in capsys.readouterr().err
    assert command(["report", "many"]) == 0
    assert not Path("ran").exists()
    assert command(["compare", "--resume", "many", "--quiet", "--trust"]) == 0


# ---- links and names -----------------------------------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A run with states that can get more rounds, as `run` in the working folder."""
    monkeypatch.chdir(tmp_path)
    ud.run("scaffold", out="run", model="mlp(4)", checkpoint_every=1, **QUICK)
    return Path("run")


USES = (
    ["show", "run"],
    ["show", "run", "--json"],
    ["report", "run"],
    ["export", "run"],
    ["resume", "run", "--rounds", "3"],
)


@pytest.mark.parametrize("name", ["states", "checkpoints", "export", "run.toml", "report.html", "model.safetensors"])
def test_links_in_a_run_folder_are_refused_and_followed_nowhere(name, stopped, capsys):
    theirs = Path("theirs")
    inside = stopped / name
    if inside.is_dir() or name == "export":
        theirs.mkdir()
        for file in inside.iterdir() if inside.is_dir() else ():
            file.rename(theirs / file.name)
            (theirs / "thesis.states").write_text("years of work")
        if inside.is_dir():
            inside.rmdir()
        (theirs / "thesis.tex").write_text("years of work")
        (theirs / "00000099.states").write_text("years of work")
    elif inside.exists():
        inside.rename(theirs)
    else:
        theirs.write_text("years of work")
    inside.symlink_to(theirs.resolve())
    before = {path: path.read_bytes() for path in theirs.rglob("*")} if theirs.is_dir() else theirs.read_bytes()
    for words in USES:
        assert command(words) == 2, words
        said = capsys.readouterr().err
        assert f"{name} is a symbolic link" in said
        assert len(said.splitlines()) == 1
    after = {path: path.read_bytes() for path in theirs.rglob("*")} if theirs.is_dir() else theirs.read_bytes()
    assert after == before


def test_a_linked_folder_of_runs_and_a_linked_run_are_fine(stopped, capsys):
    Path("disk").mkdir()
    stopped.rename("disk/first")
    Path("runs").symlink_to("disk")
    Path("other").symlink_to(Path("disk/first").resolve())
    for words in (["show", "first"], ["show", "other"], ["runs"], ["resume", "first", "--rounds", "3", "--quiet"]):
        assert command(words) == 0, capsys.readouterr().err


def test_only_files_of_our_own_names_are_deleted(stopped):
    theirs = [
        stopped / "states" / "notes.txt",
        stopped / "states" / "mine.states",
        stopped / "checkpoints" / "best.safetensors",
    ]
    for path in theirs:
        path.write_text("mine")
    ud.resume(stopped, rounds=5, checkpoint_every=1)
    assert [path.read_text() for path in theirs] == ["mine"] * 3
    assert len(list((stopped / "checkpoints").glob("0*.safetensors"))) == 2


def test_removing_a_run_leaves_what_is_not_the_runs(stopped, capsys):
    (stopped / "thesis.tex").write_text("mine")
    assert command(["runs", "--remove", "run"]) == 0
    assert "thesis.tex" in capsys.readouterr().err
    assert [path.name for path in stopped.iterdir()] == ["thesis.tex"]


# ---- run.toml ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("lr = 0.05", "lr = 0.5", "lr is 0.5 and was 0.05"),
        ("lr = 0.05\n", "", "lr is missing and was 0.05"),
        ("tolerate = false", "tolerate = true", "tolerate is True and was False"),
        ('model = "mlp(4)"', 'model = "os:getcwd"', "model is 'os:getcwd' and was 'mlp(4)'"),
        ('machine = "', 'machine = "not ', "about.machine"),
        ("lr = 0.05", "lr = 0.05.0", "not a TOML file"),
    ],
)
def test_a_changed_run_toml_is_not_resumed_and_the_key_is_named(old, new, words, stopped, capsys):
    path = stopped / "run.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert command(["resume", "run", "--rounds", "3", "--quiet"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert words in said
    assert command(["show", "run"]) == 0  # with what the run wrote, and says so
    assert words in capsys.readouterr().err
    assert command(["export", "run"]) == 0
    path.write_text((stopped / "export" / "run.toml").read_text())
    assert path.read_text() == text
    assert command(["resume", "run", "--rounds", "3", "--quiet"]) == 0


def test_a_comment_in_run_toml_changes_nothing(stopped):
    path = stopped / "run.toml"
    path.write_text("# our first run\n" + path.read_text())
    assert ud.resume(stopped, rounds=3).damage == []


def test_more_rounds_are_no_change_even_if_the_power_fails_while_they_are_written(stopped, monkeypatch):
    from undrift.experiment import run_toml

    def cut(path, data):
        raise KeyboardInterrupt

    text = (stopped / "run.toml").read_text()
    ud.resume(stopped, rounds=3)
    assert ud.load(stopped).damage == []
    later = (stopped / "run.toml").read_text()
    assert later != text
    with monkeypatch.context() as patch:
        patch.setattr(run_toml, "write_file", cut)
        with pytest.raises(KeyboardInterrupt):
            ud.resume(stopped, rounds=4)
    assert (stopped / "run.toml").read_text() == later
    assert ud.resume(stopped, rounds=5).summary["rounds"] == 5
