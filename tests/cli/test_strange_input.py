"""Strange values: each gets one sentence that names the value and what to do, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.experiment.options import from_keywords

LONG = "9" * 5000
DEEP = "[" * 1000 + "]" * 1000
STRANGE = [
    # integers that Python itself refuses to print, and digits that are none
    (("run", "--clients", LONG), ["--clients", "5000 digits"]),
    (("run", "--seed", LONG), ["--seed", "5000 digits"]),
    (("compare", "fedavg", "--grid", "[" * 1000), ["--grid", "[[[…", "name=value"]),
    (("run", "--rounds", "10000000000"), ["--rounds", "1,000,000,000"]),
    (("run", "--method", f"fedprox({LONG})"), ["fedprox", "too long a number"]),
    (("run", "--evaluate-clients", "²"), ["--evaluate-clients", "²"]),
    (("run", "--method", "²"), ["²"]),
    (("run", "--clients", "²"), ["--clients", "whole number", "²"]),
    (("deploy", "init", "app", "--sites", "a,b", "--labels", "x,y", "--shape", "²"), ["--shape", "3,32,32", "²"]),
    (("deploy", "init", "app", "--sites", "a,b", "--labels", "x,y", "--shape", "4", "--quorum", "²"), ["--quorum", "²"]),
    # nothing where something must be
    (("run", "--out", ""), ["--out", "empty"]),
    (("compare", "fedavg", "--out", ""), ["--out", "empty"]),
    (("paper", "run", "flood/table5", "--out", ""), ["--out", "empty"]),  # would have run in the working directory
    (("report", "x", "--out="), ["--out", "empty"]),
    (("run", "--data", ""), ["--data", "empty"]),
    (("run", "--method", ""), ["--method", "empty"]),
    # brackets
    (("run", "--selection", f"list({DEEP})"), ["list", "nested"]),
    (("run", "--method", "a(" * 1000 + ")" * 1000), ["nested"]),
    # numbers that no run can use
    (("run", "--validation", "1e-320"), ["validation", "1e-320", "at least"]),
    (("run", "--validation", "0.0001"), ["validation", "no sample", "0.0001"]),
    (("run", "--partition", "resample(1)", "--validation", "0.5"), ["validation=0.5", "the largest has 1", "more samples"]),
    (("run", "--memory", "1e308"), ["--memory", "1e+308", "at most 1e+06"]),
    (("run", "--model", "mlp(1000000000)"), ["mlp(1000000000)", "GB", "smaller"]),
    (("run", "--model", "mlp(99999999999999999999)"), ["mlp", "cannot be built"]),
    (("run", "--selection", "uniform(foo=1)"), ["uniform", "foo", "cohort"]),
    (("run", "--selection", "uniform(abc)"), ["uniform", "cohort", "number", "abc"]),
    (("run", "--selection", "list([true])"), ["list", "client numbers", "True"]),
    (("run", "--selection", "probability(1e-9)"), ["probability(1e-09)", "hundred rounds", "at least"]),
    (("run", "--partition", "lognormal(1e308, 1)"), ["lognormal", "sigma", "1e+308", "at most"]),
    (("run", "--augment", "crop(1000)"), ["crop(1,000)", "8×8", "at most crop(8)"]),
    (("run", "--method", "fedcda(most=" + "1" + "0" * 23 + ")"), ["fedcda", "most"]),
    (("run", "--method", "fedcda(most=1000000)"), ["fedcda", "most", "lower"]),
    (("bench", "--seconds", "nan"), ["--seconds", "finite", "nan"]),
    (("bench", "--seconds", "-1"), ["--seconds", "above 0", "-1"]),
    (("bench", "--workers", "0"), ["--workers", "between 1 and", "0"]),
    (("compare", "fedavg", "--seeds", "1000000000"), ["--seeds", "10,000"]),
    # a user's function that is none, or that is no such function
    *(
        (("run", option, reference), words)
        for option in ("--method", "--model", "--loss", "--metrics", "--partition", "--selection")
        for reference, words in (
            (":", ["':'", "write"]),
            (".x:y", ["'.x:y'", "write"]),
            ("json:dumps", ["dumps"]),
            ("os:environ", ["os:environ"]),
            ("builtins:dict", ["dict", "return" if option == "--model" else "must"]),
            ("antigravity_:x", ["antigravity_", "cannot be imported"]),
        )
    ),
    # an option that the command does not have
    (("env", "--json"), ["unknown option of `undrift env`", "'--json'", "known: --help"]),
    (("methods", "--jsn"), ["--jsn", "did you mean --json?"]),
    # options without effect
    (("compare", "fedavg", "--engine", "flower"), ["flower", "deploy"]),
    (("run", "--engine", "inline", "--ray-address", "auto"), ["--ray-address", "inline"]),
    (("deploy", "check", ".", "--port", "x"), ["--port", "'x'"]),
    (("deploy", "check", ".", "--port", "99999"), ["--port", "99999", "65,535"]),
    (("deploy", "check", ".", "--site", "a", "--port", "9092"), ["--port", "--site"]),
    (("deploy", "check", ".", "--data", "data.py"), ["--data", "--site"]),
    # what the option parser itself refuses
    (("compare", "fedavg", "--seeds", "x"), ["--seeds", "whole number", "'x'"]),
    (("compare", "fedavg", "--repeat", "x" * 300), ["--repeat", "whole number", "'xxx"]),
    (("runs", "-0.5"), ["`undrift runs`", "'-0.5'", "known: --help"]),
    # the method as it is typed, where its part has another name
    (("run", "--method", "fedbn", "--model", "logistic"), ["fedbn", "normalisation", "resnet8"]),
    (("run", "--method", "scaffold+fedsa-lora", "--model", "logistic"), ["fedsa-lora", "--adapt"]),
    (("compare", "fedavg", "fedsa-lora()", "--model", "logistic"), ["fedsa-lora()", "--adapt"]),
    # one table has one federation
    (("compare", "fedavg --clients 3", "scaffold"), ["--clients", "fedavg", "whole comparison"]),
    (("compare", "fedavg", "scaffold --noise symmetric(0.1)"), ["--noise", "scaffold"]),
]  # fmt: skip


def shortened(value):
    return " ".join(word if len(word) < 40 else word[:20] + "…" for word in value) if isinstance(value, tuple) else ""


@pytest.mark.parametrize(("arguments", "words"), STRANGE, ids=shortened)
def test_one_sentence_names_the_value_and_the_fix(undrift, arguments, words):
    result = undrift(*arguments)
    assert result.code == 2, result.err
    assert [word for word in words if word not in result.sentence] == []
    assert len(result.sentence) < 500
    assert list(Path().iterdir()) == []


def test_labels_that_leave_classes_without_samples_are_refused(undrift, small):
    """A label of 10⁷ made ten million classes, and took 5 GB."""
    x, y = np.random.default_rng(0).random((40, 6), dtype=np.float32), np.arange(40) % 3
    y[0] = 10**7
    np.savez("own.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[1:10])
    result = undrift("run", "--data", "own.npz", *small)
    assert result.code == 2
    assert "10,000,000" in result.sentence
    assert "49 samples" in result.sentence


@pytest.mark.parametrize(
    "given",
    [
        {"clients": np.int64(4), "rounds": np.int32(2), "seed": np.uint8(3)},
        {"lr": np.float32(0.25), "momentum": np.float64(0.5), "cohort": np.float64(0.5)},
        {"persist_momentum": np.bool_(True)},
    ],
    ids=str,
)
def test_numbers_of_numpy_are_numbers(given):
    options = from_keywords(given)
    for name, value in given.items():
        assert getattr(options, name) == value
        assert type(getattr(options, name)) in (int, float, bool)


def test_an_array_is_no_number():
    with pytest.raises(BadRequest, match="--lr must be a number above 0"):
        from_keywords({"lr": np.array([0.1])})


FILES = [
    ("run.toml", 'method = 3', ["run.toml", "method", "text", "3"]),
    ("run.toml", 'data = []', ["run.toml", "data", "text"]),
    ("run.toml", 'clients = true', ["run.toml", "clients", "whole number", "True"]),
    ("run.toml", 'lr = inf', ["run.toml", "lr", "finite", "inf"]),
    ("run.toml", 'thresholds = ["a"]', ["run.toml", "thresholds[0]", "number", "'a'"]),
    ("run.toml", 'engine = "inlin"', ["run.toml", "engine", "inlin", "did you mean inline?"]),
    ("run.toml", 'about = 3', ["run.toml", "about", "table", "3"]),
    ("run.toml", 'parts = ["server.rlplace()"]', ["run.toml lists the part 'server.rlplace()'", "did you mean replace?"]),
    ("run.toml", 'parts = [[1]]', ["run.toml", "parts[0]", "text"]),
    ("run.toml", f"seed = {LONG}", ["run.toml", "not a TOML file"]),
    ("run.toml", f"method = {DEEP}", ["run.toml", "nested too deeply"]),
    ("run.toml", 'method = "\\u0000"', ["cannot read"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "words"), FILES, ids=lambda value: value[:30] if isinstance(value, str) else ""
)
def test_a_file_with_a_wrong_value_is_refused_by_name(undrift, name, text, words):
    Path(name).write_text(text + "\n")
    result = undrift("run", name)
    assert result.code == 2, result.err
    assert [word for word in words if word not in result.sentence] == []


def test_a_file_that_is_no_text_is_refused(undrift):
    Path("run.toml").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in undrift("run", "run.toml").sentence


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """A finished comparison, for copies."""
    folder = tmp_path_factory.mktemp("comparison") / "cmp"
    small = {"clients": 4, "rounds": 2, "epochs": 1, "model": "logistic", "engine": "inline"}
    ud.compare(["fedavg", "fedprox"], out=folder, **small)
    return folder


@pytest.fixture
def compared(undrift, comparison):
    """A copy of it in the folder `cmp`."""
    shutil.copytree(comparison, "cmp")
    return Path("cmp")


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("compare.toml", lambda text: text.replace("seeds = [", 'seeds = ["a", '), ["compare.toml", "seeds[0]"]),
        ("compare.toml", lambda text: text.replace("rounds = 2", 'rounds = "two"'), ["compare.toml", "rounds", "'two'"]),
        ("compare.toml", lambda text: text + "\nmore = 1\n", ["compare.toml", "more"]),
        ("compare.toml", lambda text: "methods = 3\nseeds = 3\n", ["compare.toml", "methods", "list"]),
        ("rows.jsonl", lambda text: text.replace('"seconds":', '"seconds": "long", "s":'), ["rows.jsonl", "seconds"]),
        ("rows.jsonl", lambda text: "[1, 2]\n" + text, ["rows.jsonl", "table"]),
        ("rows.jsonl", lambda text: "{]\n" + text, ["rows.jsonl", "line 1"]),
        ("rows.jsonl", lambda text: "NaN\n" + text, ["rows.jsonl", "line 1"]),
    ],
)  # fmt: skip
def test_a_comparison_with_a_wrong_file_is_refused_by_name(undrift, compared, name, change, words):
    path = compared / name
    path.write_text(change(path.read_text()))
    result = undrift("compare", "--resume", compared)
    assert result.code == 2, result.err
    assert [word for word in words if word not in result.sentence] == []


def test_a_comparison_that_was_moved_is_found_where_it_is(undrift, compared):
    compared.rename("elsewhere")
    again = undrift("compare", "--resume", "elsewhere", "--json", "--quiet")
    assert again.code == 0, again.err
    assert {Path(row["run"]).parent.name for row in again.json["rows"]} == {"elsewhere"}
    assert all(Path(row["run"]).is_dir() for row in again.json["rows"])


def test_data_are_found_from_another_directory(undrift, small, monkeypatch):
    x, y = np.random.default_rng(0).random((60, 6), dtype=np.float32), np.arange(60) % 3
    np.savez("own.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])
    first = undrift("run", "--data", "own.npz", "--partition", "iid", *small, "--out", "run", "--json", "--quiet")
    assert first.code == 0, first.err
    Path("else/where").mkdir(parents=True)
    monkeypatch.chdir("else/where")
    again = undrift("run", "../../run/run.toml", "--out", "again", "--json", "--quiet")
    assert again.code == 0, again.err
    assert again.json["model_sha256"] == first.json["model_sha256"]
    assert undrift("resume", "../../run", "--rounds", "3", "--quiet").code == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("this is no Python\n", ["data.py", "not Python", "line 1"]),
        ("import sys\nsys.exit(0)\n", ["data.py", "exits"]),
        ("def load():\n    raise SystemExit\nLABELS = ['a', 'b']\n", ["data.py", "exits"]),
        ("x\0y", ["data.py", "not Python"]),
    ],
)
def test_deploy_check_refuses_a_data_py_that_is_none(undrift, text, words):
    from undrift.deploy.init import init

    init(Path("app"), {"model": "mlp(8)"}, {"sites": ["berlin"], "labels": ["a", "b"], "shape": [4]})
    Path("data.py").write_text(text)
    result = undrift("deploy", "check", "app", "--site", "berlin", "--data", "data.py")
    assert result.code == 2, result.err
    assert [word for word in words if word not in result.sentence] == []


def spawn(*arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", "from undrift.cli import main; main()", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment},
    )  # fmt: skip


def test_an_encoding_without_greek_gets_question_marks(tmp_path, small):
    process = spawn("run", *small, "--out", str(tmp_path / "run"), PYTHONIOENCODING="ascii", UNDRIFT_CORES="1")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert b"Traceback" not in err
    assert b"?" in out
    assert max(out) < 128


def test_ctrl_c_while_torch_is_imported_is_one_line(tmp_path):
    process = spawn("run", "--rounds", "100000", "--out", str(tmp_path / "run"))
    while "libtorch_cpu" not in Path(f"/proc/{process.pid}/maps").read_text():
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert (out, err) == (b"", b"undrift: stopped\n")


def test_what_a_user_function_raises_stays_attached():
    def factory(shape, classes):
        raise KeyError("weights")

    with pytest.raises(BadRequest, match=r"the model factory could not be made: KeyError: 'weights'") as caught:
        ud.run("fedavg", model=factory, rounds=1, out=False)
    assert isinstance(caught.value.__cause__, KeyError)
