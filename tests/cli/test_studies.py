"""Compare, report, export and paper as users type them, and what they refuse."""

from __future__ import annotations

import csv
import html
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from undrift.report.report import compare_command
from undrift.store.record import rows_of

UNDRIFT = [sys.executable, "-c", "from undrift.cli import main; main()"]


def test_compare_prints_tables_and_writes_a_page(undrift, small):
    result = undrift("compare", "fedavg", "fedprox(mu=0.5)", *small, "--seeds", "2", "--out", "both")
    assert result.code == 0, result.err
    for word in ("±", "rank", "won", "G − fedavg", "ms/client", "both/index.html", "L1 Acc(L): on receipt"):
        assert word in result.out
    assert "4 runs" in result.err
    page = html.unescape(Path("both/index.html").read_text())
    assert "undrift compare fedavg 'fedprox(mu=0.5)' --clients 5" in page
    assert "--seeds 2" in page


def test_a_finished_comparison_can_be_resumed_by_folder_or_by_its_options(undrift, small):
    arguments = ("compare", "fedavg", "fedprox(mu=0.5)", *small, "--out", "both", "--json", "--quiet")
    first = undrift(*arguments).json["rows"]
    assert undrift("compare", "--resume", "both", "--json", "--quiet").json["rows"] == first
    assert undrift("compare", "--resume", "--out", "both", "--json", "--quiet").json["rows"] == first
    assert undrift(*arguments, "--resume").json["rows"] == first
    more = undrift("compare", "--resume", "both", "--seeds", "2", "--json", "--quiet").json["rows"]
    assert more[:2] == first
    assert [row["seed"] for row in more] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "seeds", ["--seeds 2", "--repeat 2 --seed 1 --data-seed 7", "--seeds 2 --data-seed 7", "--data-seed 7"]
)
def test_the_command_on_the_page_asks_for_the_same_comparison(undrift, small, seeds):
    own = ("--thresholds", "0.5,0.9", "--selection", "list([0, 2])", *seeds.split())
    assert undrift("compare", "fedavg", "fedavg --lr 0.01", *small, *own, "--out", "first", "--quiet").code == 0
    program, *arguments = shlex.split(compare_command(Path("first")))
    assert program == "undrift"
    assert undrift(*arguments, "--out", "again", "--quiet").code == 0
    assert Path("again/compare.toml").read_text() == Path("first/compare.toml").read_text()


def test_grid_on_the_command_line(undrift, small):
    result = undrift("compare", "fedavg", *small, "--grid", "lr=0.000001,0.1", "--validation", "0.2", "--json")
    assert result.code == 0, result.err
    assert result.json["rows"][0]["chosen"] == {"lr": 0.1}
    assert [one["lr"] for one in result.json["tried"]] == [1e-6, 0.1]
    assert "chosen on validation data" in result.err


def test_a_failed_run_is_marked_and_the_exit_code_says_so(undrift, small):
    Path("mine.py").write_text(
        "import torch\n"
        "def loss(logits, y):\n"
        "    if logits.requires_grad:\n"
        "        raise ArithmeticError('my own words')\n"
        "    return torch.nn.functional.cross_entropy(logits, y, reduction='none')\n"
    )
    result = undrift("compare", "fedavg", "fedprox --loss mine:loss", *small, "--out", "both", "--json")
    assert result.code == 1
    assert [row.get("failed") is None for row in result.json["rows"]] == [True, False]
    assert "my own words" in result.json["rows"][1]["detail"]
    assert "fedprox" in result.err
    assert "failed" in result.err
    sys.modules.pop("mine", None)


def interrupted(folder: Path, *more: str, when: Callable[[], object]) -> None:
    """Start a comparison of four runs, send Ctrl-C as soon as `when()` is true, and check how it ends."""
    arguments = (
        "compare",
        "fedavg",
        "fedprox",
        "scaffold",
        "fednolowe",
        "--rounds",
        "400",
        "--workers",
        "2",
        "--out",
        "cut",
    )
    path = os.pathsep.join([str(folder), *sys.path])  # the modules in the folder, and the package under test
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    process = subprocess.Popen(
        [*UNDRIFT, *arguments, *more], cwd=folder, stderr=subprocess.PIPE, text=True, env=environment
    )
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and not when():
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "compare --resume cut" in err
    assert "Traceback" not in err
    assert list((folder / "cut").glob("*/run.sqlite"))


def test_ctrl_c_keeps_finished_rows_and_explains_how_to_resume(tmp_path):
    interrupted(tmp_path, when=lambda: list((tmp_path / "cut").glob("*/checkpoints/*")))


def test_ctrl_c_works_although_a_module_swallowed_it(tmp_path):
    """Loading an extension module can clear a KeyboardInterrupt. Here a loss does it, once in each process."""
    (tmp_path / "deaf.py").write_text(
        "import contextlib, os, pathlib, sys, time, torch\n"
        "def loss(logits, y):\n"
        "    here = pathlib.Path(f'deaf-{os.getpid()}')\n"
        "    if sys.argv[0].endswith('run_pool.py') and not here.exists():\n"
        "        here.touch()\n"
        "        with contextlib.suppress(KeyboardInterrupt):\n"
        "            time.sleep(60)\n"
        "    return torch.nn.functional.cross_entropy(logits, y, reduction='none')\n"
    )
    interrupted(tmp_path, "--loss", "deaf:loss", when=lambda: len(list(tmp_path.glob("deaf-*"))) == 2)
    rounds = [rows_of(run.parent, "SELECT COUNT(*) FROM rounds")[0][0] for run in tmp_path.glob("cut/*/run.sqlite")]
    assert rounds == [1, 1], "both stop after the round in which Ctrl-C came"


def test_report_of_runs_and_export(undrift, small, finished):
    undrift("run", *small, "--method", "fedprox", "--out", "second", "--quiet")
    result = undrift("report", "first", "second", "--out", "page.html", "--title", "Mine")
    assert result.code == 0, result.err
    assert "<title>Mine</title>" in Path("page.html").read_text()
    assert undrift("report", "first").code == 0
    assert Path("first/report.html").exists()
    result = undrift("export", "first", "--csv", "--out", "tables")
    assert result.code == 0, result.err
    for table in ("rounds", "metrics", "notes", "events", "times"):
        with Path(f"tables/{table}.csv").open() as file:
            head, *rows = csv.reader(file)
        assert len(rows) == rows_of(Path("first"), f"SELECT COUNT(*) FROM {table}")[0][0]
    assert head == ["round", "what", "seconds"]


def test_a_comparison_is_reported_by_its_name_alone(undrift, small):
    assert undrift("compare", "fedavg", "fedprox", *small, "--quiet").code == 0
    assert undrift("report", "digits-compare-1").code == 0
    assert "undrift compare fedavg fedprox" in Path("runs/digits-compare-1/report.html").read_text()


@pytest.mark.extras
def test_export_as_parquet(undrift, finished):
    import pyarrow.parquet

    assert undrift("export", "first", "--parquet").code == 0
    assert pyarrow.parquet.read_table("first/export/metrics.parquet").num_rows > 0


def test_paper_list_and_show(undrift):
    found = undrift("paper", "list", "--json").json
    assert "flood/table5" in [one["name"] for one in found]
    assert "min" in undrift("paper", "list").out
    result = undrift("paper", "show", "flood/table5")
    assert result.code == 0
    assert "72.79 (5.95)" in result.out
    assert "ASW alone improves" in result.out
    assert "rounds 100 instead of 2000" in undrift("paper", "show", "flood/table5", "--scale", "quick").out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("compare",), "at least one method"),
        (("compare", "--resume"), "folder"),
        (("compare", "--resume", "nowhere"), "folder"),
        (("report", "spoilt"), "compare.toml: rejected must be a list"),
        (("compare", "fedavg", "--grid", "lr=0.1,1"), "validation"),
        (("compare", "fedavg", "--grid", "lr"), "name=value"),
        (("compare", "fedavg", "--grid", "lr=a", "--validation", "0.1"), "number"),
        (("compare", "fedavg", "--grid", "lrr=1", "--validation", "0.1"), "lr"),
        (("compare", "fedavg --seed 1"), "--seed"),
        (("compare", "fedavg --rate 1"), "--rate"),
        (("compare", "fedavg", "--method", "fedprox"), "arguments"),
        (("report", "nowhere"), "nowhere"),
        (("export", "nowhere"), "nowhere"),
        (("paper", "show", "flod/table5"), "flood/table5"),
        (("paper", "run", "flood/table9"), "flood/table5"),
        (("paper", "run", "flood/table5", "--scale", "medium"), "quick"),
        (("paper", "run", "flood/table5", "--row", "nobody"), "nobody"),
        (("paper", "run", "flood/table5", "--rounds", "0"), "--rounds"),
        (("paper", "run", "flood/table5", "--seed", "-1"), "--seed"),
        (("paper", "run", "flood/table5", "--scale", "paper", "--data", "cifar-100-subset"), "cifar-100-subset"),
        (("paper", "results", "nowhere.jsonl"), "nowhere.jsonl"),
    ],
)
def test_bad_requests_are_one_sentence(undrift, arguments, word):
    Path("spoilt").mkdir()
    Path("spoilt/compare.toml").write_text('methods = [{method = "fedavg"}]\nseeds = [[0, 0]]\nrejected = 5\n')
    result = undrift(*arguments)
    assert result.code == 2, result.err
    assert word in result.sentence


def test_runs_of_different_data_empty_and_half_written_ones_have_no_report(undrift, small, finished):
    undrift("run", *small[2:], "--clients", "4", "--out", "other", "--quiet")
    result = undrift("report", "first", "other")
    assert result.code == 2
    assert "clients is 5" in result.sentence
    Path("half").mkdir()
    shutil.copy("first/run.sqlite", "half/run.sqlite")
    assert "half-written" in undrift("report", "half").sentence
    shutil.copytree("first", "empty")
    import sqlite3

    with sqlite3.connect("empty/run.sqlite") as record:
        record.execute("DELETE FROM rounds")
    record.close()
    assert "no finished round" in undrift("report", "empty").sentence
    Path("nothing").mkdir()
    assert "neither a run nor a folder of runs" in undrift("report", "nothing").sentence


def test_a_taken_folder_is_not_touched(undrift, small, finished):
    result = undrift("compare", "fedavg", *small, "--out", "first")
    assert result.code == 2
    assert "taken" in result.sentence
    assert undrift("paper", "run", "fednolowe/table3", "--out", "first").code == 2
