"""Every example runs, and its output obeys the law that it demonstrates."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
KEPT = Path(__file__).parents[2] / "docs" / "tasks.jsonl"


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    """Run an example as `python examples/NAME.py FOLDER` does, in a temporary folder, and return its output."""

    def run(name: str, *more: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, str(tmp_path), *more])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return run


def column(text: str, name: str) -> list[float]:
    """A column of a printed table: the means."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    start = next(i for i, line in enumerate(lines) if line[0] == "method" and name in line)
    at, rows = lines[start].index(name), lines[start + 2 :]
    return [float(row[at].split(" ")[0]) for row in rows[: next((i for i, r in enumerate(rows) if len(r) <= at), None)]]


def test_there_is_a_test_and_a_line_in_the_list_for_every_example():
    names = {file.stem for file in EXAMPLES.glob("*.py")}
    assert names == {name.removeprefix("test_") for name in globals() if (EXAMPLES / f"{name[5:]}.py").exists()}
    assert names == set(re.findall(r"^\| \[(\w+)\.py\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    for name in names:
        text = (EXAMPLES / f"{name}.py").read_text()
        assert len(text.splitlines()) <= 60
        assert f"python examples/{name}.py" in text


def test_own_data(printed):
    text = printed("own_data")
    sizes = [int(n) for n in re.findall(r"(\d+) to (?:train|test) on", text)]
    assert len(sizes) == 4
    assert sum(sizes) == 1797  # every digit belongs to one school, for training or for testing
    own = [float(value) for value in re.findall(r"([\d.]+)% on its own", text)]
    assert sum(own) / 3 == pytest.approx(column(text, "L1 Acc(L)")[0], abs=0.1)
    on_all = [float(value) for value in re.findall(r"([\d.]+)% on all", text)]
    assert all(on_own_data > on_all_data for on_own_data, on_all_data in zip(own, on_all, strict=True))


def test_own_model(printed):
    text = printed("own_model")
    recorded, by_hand = re.findall(r"recorded ([\d.]+), by hand ([\d.]+)", text)[0]
    assert recorded == by_hand
    assert f"Net with {(9 + 1) * 8 + (8 * 16 + 1) * 10} parameters" in text


def test_own_method(printed):
    text = printed("own_method")
    assert re.findall(r"^(power .*): (\w+)$", text, re.MULTILINE) == [
        ("power 1 is fedavg", "True"),
        ("power 0 is fedavg-uniform", "True"),
        ("power 0.5 is neither", "True"),
    ]
    assert "scaffold+power" in text


def test_own_metric(printed):
    text = printed("own_metric")
    pairs, at_least = re.findall(r"(\d+) pairs, .* in (\d+)", text)[0]
    assert pairs == at_least
    assert re.findall(r"^(G|L1|L2) +on (\w+)", text, re.MULTILINE) == [
        ("G", "global"),
        ("L1", "global"),
        ("L1", "own"),
        ("L2", "global"),
        ("L2", "own"),
    ]


def test_comparing(printed, tmp_path):
    text = printed("comparing")
    assert "fedprox(mu=0) is fedavg in every seed: True" in text
    assert "+0.00 [+0.00, +0.00]" in text  # the paired difference of the control
    assert len(column(text, "G")) == 3
    assert (tmp_path / "compared" / "index.html").stat().st_size > 10_000


def test_resuming(printed):
    text = printed("resuming")
    last_file, resumed_from = re.findall(
        r"killed with \d+ checkpoints: .*?(\d+)\.safetensors\nresumed .* round (\d+)$", text, re.M
    )[0]
    assert 1 <= int(resumed_from) <= int(last_file) < 30  # a file that the record does not list yet does not count
    ends = re.findall(r"^(\w+) +30 rounds, model (\w{16})$", text, re.MULTILINE)
    assert [name for name, _ in ends] == ["resumed", "undisturbed"]
    assert len({model for _, model in ends}) == 1


def test_deploying(printed):
    text = printed("deploying")
    for file in ("run.toml", "site/data.py", "undrift_app/server.py", "undrift_app/client.py", "README.md"):
        assert file in text
    numbers = int(re.findall(r"mlp\(16\), ([\d,]+) numbers", text)[0].replace(",", ""))
    whole, header, model, change = (
        int(n.replace(",", ""))
        for n in re.findall(r"leaves: ([\d,]+) bytes.*header ([\d,]+), \S+ ([\d,]+), \S+change ([\d,]+)", text)[0]
    )
    assert model == change == 4 * numbers  # float32: the model, and SCAFFOLD's change of the same length
    assert whole == header + model + change


def test_diabetes(printed, tmp_path):
    text = printed("diabetes")
    ours, pooled = (
        float(value) for value in re.findall(r"RMSE ([\d.]+) of the federation, ([\d.]+) of a ridge", text)[0]
    )
    assert ours <= 1.05 * pooled
    assert column(text, "G")[0] == pytest.approx(ours, abs=0.01)
    assert (tmp_path / "diabetes.html").stat().st_size > 10_000


@pytest.mark.slow
def test_shapes(printed, tmp_path):
    """Six rounds are on the way; what all rounds reach is in docs/tasks.jsonl."""
    assert float(re.findall(r"mean IoU ([\d.]+)", printed("shapes", "6"))[0]) > 0.4  # background alone: below 0.25
    assert (tmp_path / "shapes.png").exists()


@pytest.mark.data
def test_shakespeare(printed, tmp_path):
    """Two rounds show that it runs; what all rounds reach is in docs/tasks.jsonl."""
    text = printed("shakespeare", "2")
    assert float(re.findall(r"bigram table: token accuracy ([\d.]+)%", text)[0]) == 27.7
    found = re.findall(r"^fed\S+ lr=(\S+): token accuracy ([\d.]+)% after 2 rounds", text, re.MULTILINE)
    assert len(found) == 2
    assert {rate for rate, _ in found} <= {"0.003", "0.01", "0.03"}
    assert "My lord, " in text
    assert (tmp_path / "shakespeare.html").stat().st_size > 500


def test_the_kept_results_show_what_the_examples_promise():
    kept = {row["example"]: row for row in map(json.loads, KEPT.read_text().splitlines())}
    assert set(kept) == {"shakespeare", "diabetes", "shapes"}
    assert all(row[key] for row in kept.values() for key in ("command", "machine", "date", "seeds", "printed"))
    said = {name: "\n".join(row["printed"]) for name, row in kept.items()}
    bigram, *methods = (float(value) for value in re.findall(r"token accuracy ([\d.]+)%", said["shakespeare"]))
    assert int(re.findall(r"(\d+) roles", said["shakespeare"])[0]) >= 100
    assert len(methods) == 2
    assert min(methods) > bigram
    ours, pooled = re.findall(r"RMSE ([\d.]+) of the federation, ([\d.]+) of", said["diabetes"])[0]
    assert float(ours) <= 1.05 * float(pooled)
    assert float(re.findall(r"mean IoU ([\d.]+)", said["shapes"])[0]) > 0.8
