"""Bad input: one sentence with the fix, exit code 2, no traceback, nothing left behind."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from undrift.cli import command

BAD = [
    # unknown names, with the nearest known one
    (("run", "--method", "fedagv"), ["fedagv", "fedavg"]),
    (("run", "--method", "scafold+fliu"), ["scafold", "scaffold"]),
    (("run", "--method", "flood@bond"), ["bond", "bound"]),
    (("run", "--data", "digist"), ["digist", "digits"]),
    (("run", "--model", "lenet6"), ["lenet6", "lenet5"]),
    (("run", "--methd", "fedavg"), ["--methd", "--method"]),
    (("run", "--leaning-rate", "1"), ["--leaning-rate"]),
    (("run", "--method", "fedprox(nu=1)"), ["nu", "fedprox", "mu"]),
    (("run", "--partition", "dirichlett(0.1)"), ["dirichlett", "dirichlet"]),
    (("run", "--partition", "dirichlet(betta=0.1)"), ["betta", "beta"]),
    (("run", "--noise", "symetric(0.1)"), ["symetric", "symmetric"]),
    (("run", "--domains", "invertd"), ["invertd", "inverted"]),
    (("run", "--domains", "identity+inverted+edge", "--clients", "2"), ["2 clients", "3 domains"]),
    (("run", "--proxy", "1.5"), ["--proxy", "1.5"]),
    (("run", "--partition", "pathological(11)"), ["pathological(11)", "10"]),
    (("run", "--selection", "unifrom"), ["unifrom", "uniform"]),
    (("run", "--weighting", "bond"), ["bond", "bound"]),
    (("run", "--engine", "inlin"), ["inlin", "inline"]),
    (("run", "--optimizer", "sgdd"), ["sgdd", "sgd"]),
    (("run", "--augment", "crops"), ["crops", "crop"]),
    (("run", "--model", "nowhere:make"), ["nowhere"]),
    (("run", "--model", "undrift.models:bild"), ["bild", "build"]),
    (("run", "--method", "nowhere:make"), ["nowhere"]),
    (("run", "--loss", "nowhere:make"), ["nowhere"]),
    (("rnu",), ["rnu", "run"]),
    (("data", "shw"), ["shw", "show"]),
    (("methods", "fedporx"), ["fedporx", "fedprox"]),
    (("show", "nothing"), ["nothing", "undrift runs"]),
    (("resume", "nothing"), ["nothing", "undrift runs"]),
    (("runs", "--remove", "nothing"), ["nothing"]),
    (("runs", "nowhere"), ["nowhere"]),
    (("compare", "fedavg", "fedporx"), ["fedporx", "fedprox"]),
    (("compare", "fedavg --lrr 1"), ["--lrr", "--lr"]),
    (("compare", "fedavg", "--method", "fedprox"), ["--method"]),
    (("compare", "fedavg", "--seeds", "0"), ["--seeds"]),
    (("compare",), ["compare"]),
    (("compare", "fedavg", "scaffold --optimizer adam"), ["scaffold", "adam"]),
    (("compare", "fedavg", "fedprox(0.1"), ["brackets"]),
    # brackets
    (("run", "--method", "fedprox(0.1"), ["fedprox(0.1", "brackets"]),
    (("run", "--method", "fedprox)"), ["brackets"]),
    (("run", "--partition", "dirichlet(0.1))"), ["brackets"]),
    (("run", "--model", "mlp(100"), ["brackets"]),
    # values that no run can have
    (("run", "--clients", "0"), ["--clients", "at least 1"]),
    (("run", "--clients", "many"), ["--clients", "whole number", "many"]),
    (("run", "--clients", "2.5"), ["--clients", "whole number"]),
    (("run", "--clients", "100000"), ["100000", "resample"]),
    (("run", "--cohort", "0"), ["cohort", "above 0"]),
    (("run", "--cohort", "0.0"), ["cohort", "above 0"]),
    (("run", "--cohort", "2.0"), ["cohort", "2.0"]),
    (("run", "--cohort", "21"), ["cohort", "21", "20"]),
    (("run", "--cohort", "half"), ["--cohort", "half"]),
    (("run", "--rounds", "-1"), ["--rounds", "-1"]),
    (("run", "--rounds", "0"), ["--rounds"]),
    (("run", "--lr", "nan"), ["--lr", "nan"]),
    (("run", "--lr", "inf"), ["--lr"]),
    (("run", "--lr", "0"), ["--lr", "above 0"]),
    (("run", "--lr", "fast"), ["--lr", "fast"]),
    (("run", "--momentum", "1"), ["--momentum"]),
    (("run", "--method", "fedprox(mu=high)"), ["mu", "number", "high"]),
    (("run", "--method", "fedprox(mu=-1)"), ["fedprox", "mu", "-1"]),
    (("run", "--partition", "dirichlet(-1)"), ["dirichlet", "-1"]),
    (("run", "--noise", "symmetric(1.5)"), ["symmetric", "1.5"]),
    (("run", "--stop-at", "0.9"), ["--stop-at", "--validation"]),
    (("run", "--device", "quantum"), ["device", "quantum"]),
    (("run", "--selection", "list([99])"), ["99"]),
    (("run", "--selection", "all", "--cohort", "0.5"), ["--cohort", "all"]),
    (("run", "--clients"), ["--clients"]),
    (("run", "--init", "nowhere.safetensors"), ["nowhere.safetensors"]),
    (("run", "nowhere.toml"), ["nowhere.toml"]),
    # a model that does not fit the data: those that do are named
    (("run", "--model", "lenet5"), ["lenet5", "8", "mlp"]),
    # methods that cannot be joined
    (("run", "--method", "flood+bound"), ["flood", "bound", "@"]),
    (("run", "--method", "scaffold", "--optimizer", "adam"), ["scaffold", "adam"]),
    # data that is not there
    (("run", "--data", "/nowhere/data.npz"), ["/nowhere/data.npz"]),
    (("run", "--data", "./nowhere"), ["nowhere"]),
    (("comprae",), ["unknown command 'comprae'", "did you mean compare?"]),
    (("paper", "results", ""), ["''", "paper run --results FILE"]),
    (("run", "--sampling", "json:JSONDecoder"), ["JSONDecoder", "sampling", "such as", "flood"]),
    (("paper", "shwo"), ["unknown command 'shwo'", "did you mean show?"]),
    (("data", "show", "digist"), ["digist", "digits"]),
    (("data", "show", "digits", "dirichlet(0.1)", "--clients", "0"), ["client"]),
]


@pytest.mark.parametrize(
    ("arguments", "words"), BAD, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_one_sentence_and_exit_code_2(undrift, arguments, words):
    result = undrift(*arguments)
    assert result.code == 2, result.err
    assert [word for word in words if word not in result.sentence] == []
    assert result.out == ""
    assert not Path("runs").exists()


def npz(path, **changes):
    draw = np.random.default_rng(0)
    arrays = {
        "x_train": draw.random((40, 6), dtype=np.float32), "y_train": np.arange(40) % 3,
        "x_test": draw.random((12, 6), dtype=np.float32), "y_test": np.arange(12) % 3,
    }  # fmt: skip
    for name, change in changes.items():
        arrays[name] = change(arrays[name])
    np.savez(path, **arrays)
    return path


def test_own_data_runs(undrift, small):
    result = undrift("run", "--data", npz(Path("own.npz")), "--partition", "iid", *small, "--json", "--quiet")
    assert result.code == 0, result.err
    assert result.json["rounds"] == 2


def put(value):
    def change(array):
        array = array.astype(np.result_type(array, type(value)))
        array.flat[0] = value
        return array

    return change


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y_train": put(-1)}, ["label", "-1"]),
        ({"y_test": put(7), "y_train": put(0)}, ["label"]),
        ({"x_train": put(np.nan)}, ["NaN"]),
        ({"x_test": put(np.inf)}, ["test", "infinite"]),
        ({"y_train": lambda y: y[:-1]}, ["40", "39"]),
        ({"y_train": lambda y: y + 0.5}, ["y_train"]),
        ({"x_train": lambda x: x.astype(object)}, ["own.npz"]),
    ],
    ids=["negative label", "label only in test", "nan", "inf in test", "counts", "broken labels", "pickled"],
)
def test_own_data_that_cannot_be_used(undrift, small, changes, words):
    path = npz(Path("own.npz"), **changes)
    if "y_test" in changes:  # a class in no client's training data: refused only if the data name their classes
        with np.load(path) as arrays:
            np.savez(path, **{**arrays, "classes": np.array(["a", "b", "c"])})
    result = undrift("run", "--data", path, "--partition", "iid", *small)
    assert result.code == 2, result.err
    assert [word for word in words if word not in result.sentence] == []


def test_a_truncated_file_is_refused(undrift, small):
    path = npz(Path("own.npz"))
    path.write_bytes(path.read_bytes()[:300])
    result = undrift("run", "--data", path, *small)
    assert result.code == 2, result.err
    assert "own.npz" in result.sentence


def test_a_data_folder_that_is_missing_or_empty_is_refused(undrift, small, monkeypatch):
    monkeypatch.setenv("UNDRIFT_DATA", "/nowhere/at/all")
    result = undrift("run", "--data", "./pictures", *small)
    assert result.code == 2, result.err
    Path("pictures").mkdir()
    result = undrift("run", "--data", "./pictures", *small)
    assert result.code == 2, result.err
    assert "pictures" in result.sentence


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("roundz = 3", ["roundz", "rounds"]),
        ('rounds = "three"', ["rounds", "three"]),
        ("rounds = 2.5", ["rounds", "2.5"]),
        ("rounds = [", ["not a TOML file"]),
        ('parts = ["objective.fedporx()"]', ["fedporx", "fedprox"]),
        ("clients = 0", ["clients"]),
        ('data = "object:mine"', ["Python"]),
        ('parts = ["objective.object:Mine()"]', ["Python"]),
    ],
)
def test_a_bad_run_toml_is_refused(undrift, lines, words):
    Path("run.toml").write_text(lines + "\n")
    result = undrift("run", "run.toml")
    assert result.code == 2, result.err
    assert [word for word in words if word not in result.sentence] == []


def test_an_out_that_cannot_be_written(undrift, small):
    Path("file").write_text("not a folder")
    for out in ("file/run", "/proc/undrift-run"):
        result = undrift("run", *small, "--out", out)
        assert result.code == 2, result.err
        assert "--out" in result.sentence
    assert Path("file").read_text() == "not a folder"


def test_a_full_disk_before_the_run_is_a_bad_request(undrift, small, monkeypatch):
    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    result = undrift("run", *small, "--out", "run")
    assert result.code == 2, result.err
    assert "No space left" in result.sentence
    assert not Path("run").exists()


def test_a_full_disk_during_the_run_is_a_failed_run(undrift, small, monkeypatch):
    import undrift.store.run_store as store

    whole = store.write_pieces

    def full(path, pieces):
        if "checkpoints" in str(path) and "00000000" not in str(path):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return whole(path, pieces)

    monkeypatch.setattr(store, "write_pieces", full)
    result = undrift("run", *small, "--out", "run", "--quiet")
    assert result.code == 1, result.err
    assert "No space left" in result.err
    assert "Traceback" not in result.err


def test_a_taken_out_names_the_free_one_and_destroys_nothing(undrift, small, finished):
    before = sorted((path.name, path.stat().st_mtime_ns) for path in Path("first").iterdir())
    result = undrift("run", *small, "--out", "first")
    assert result.code == 2
    assert "first-1" in result.sentence
    assert "--force" in result.sentence
    assert sorted((path.name, path.stat().st_mtime_ns) for path in Path("first").iterdir()) == before


def test_force_moves_the_old_run_aside(undrift, small, finished):
    result = undrift("run", *small, "--out", "first", "--force", "--json", "--quiet", "--seed", "1")
    assert result.code == 0, result.err
    (aside,) = Path().glob("first.old*")
    assert undrift("show", aside, "--json").json["model_sha256"] == finished["model_sha256"]
    assert result.json["model_sha256"] != finished["model_sha256"]


def test_a_run_in_use_is_refused(undrift, finished):
    import os

    from undrift.store.run_store import locked

    lock = locked(Path("first"))
    try:
        result = undrift("resume", "first", "--rounds", "3", "--quiet")
        assert result.code == 2, result.err
        assert "in use" in result.sentence
    finally:
        os.close(lock)


def test_a_bug_keeps_its_traceback(monkeypatch):
    import undrift.cli.env as env

    monkeypatch.setattr(env.platform, "platform", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        command(["env"])
