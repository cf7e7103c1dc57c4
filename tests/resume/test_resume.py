"""A resumed run has the result of an undisturbed one, whatever ended it."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import undrift as ud
from undrift.cli import command
from undrift.core.errors import BadRequest, RunFailed
from undrift.experiment.callback import RunCallback
from undrift.experiment.resume import resume
from undrift.testing import small_network, tiny

SETTINGS = {"rounds": 6, "epochs": 1, "batch": 8, "cohort": 3, "evaluate_every": 2}


class StopAfter(RunCallback):
    """Ends a run with Ctrl-C after a round."""

    def __init__(self, last: int) -> None:
        self.last = last

    def on_round(self, round, rounds, seconds, accuracy):
        if round == self.last:
            raise KeyboardInterrupt


def network():
    return small_network(5, 3, norm=True, dropout=0.2)


def stopped(out: Path, after: int, method: str = "scaffold", every: int | None = None) -> None:
    with pytest.raises(KeyboardInterrupt, match="undrift resume"):
        ud.run(method, tiny(5), model=network, out=out, callback=StopAfter(after), checkpoint_every=every, **SETTINGS)


def again(out: Path, **more):
    return resume(out, federation=tiny(5), model=network, **more)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return ud.run("scaffold", tiny(5), model=network, out=tmp_path_factory.mktemp("undisturbed") / "run", **SETTINGS)


def rows(folder: Path) -> list:
    db = sqlite3.connect(folder / "run.sqlite")
    found = [db.execute(f"SELECT {what} FROM {table} ORDER BY {order}").fetchall() for table, what, order in (
        ("rounds", "round, lr, cohort", "round"),
        ("metrics", "*", "round, client, stage, data, metric"),
        ("notes", "*", "round, client, part, name, value"),
    )]  # fmt: skip
    db.close()
    return found


@pytest.mark.parametrize("after", range(5))
def test_a_run_stopped_after_any_round_and_resumed_equals_an_undisturbed_one(after, undisturbed, tmp_path):
    stopped(tmp_path / "run", after)
    result = again(tmp_path / "run")
    assert torch.equal(result.vector, undisturbed.vector)
    assert rows(tmp_path / "run") == rows(undisturbed.folder)
    assert ("resumed",) in result.rows("SELECT kind FROM events")


POINTS = ("segment synced", "checkpoint written", "rows inserted", "checkpoint named", "old files collected")


def cli(*arguments: str, **more) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", "from undrift.cli import main; main()", *arguments],
                          capture_output=True, text=True, timeout=120, **more)  # fmt: skip


RUN = ("run", "--method", "scaffold", "--clients", "6", "--rounds", "4", "--epochs", "1", "--quiet", "--json", "--engine", "inline",
       "--model", "mlp(400)")  # fmt: skip


@pytest.fixture(scope="module")
def reference() -> str:
    return ud.run("scaffold", clients=6, rounds=4, epochs=1, engine="inline", model="mlp(400)", out=False).summary[
        "model_sha256"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_dies_between_any_two_writes_of_a_commit_loses_nothing(point, reference, tmp_path):
    out = str(tmp_path / "run")
    script = "from undrift.store import run_store; points = []\n" \
             f"def third(p):\n    points.append(p)\n    if points.count({point!r}) == 3: import os; os._exit(77)\n" \
             "run_store.reached = third\nfrom undrift.cli import main; main()"  # fmt: skip
    died = subprocess.run([sys.executable, "-c", script, *RUN, "--out", out], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "UNDRIFT_CHECKPOINT_EVERY": "1"})  # fmt: skip
    assert died.returncode == 77, died.stderr
    done = cli("resume", out, "--quiet", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model_sha256"] == reference


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before_and_is_reported(undisturbed, tmp_path):
    stopped(tmp_path / "run", 3, every=1)
    newest = max((tmp_path / "run" / "checkpoints").glob("0*.safetensors"))
    data = bytearray(newest.read_bytes())
    data[-5] ^= 0xFF
    newest.write_bytes(bytes(data))
    result = again(tmp_path / "run")
    assert torch.equal(result.vector, undisturbed.vector)
    kinds = dict(result.rows("SELECT kind, detail FROM events WHERE kind IN ('fallback', 'resumed')"))
    assert "checkpoint 4 is not whole" in kinds["fallback"]
    assert "round 3" in kinds["resumed"]


def test_without_state_files_nothing_whole_is_left(tmp_path):
    stopped(tmp_path / "run", 3, every=1)
    for segment in (tmp_path / "run" / "states").iterdir():
        segment.unlink()
    with pytest.raises(RunFailed, match="nothing whole is left"):
        again(tmp_path / "run")


def test_with_a_truncated_record_nothing_whole_is_left(tmp_path, capsys):
    ud.run("fedavg", clients=4, rounds=2, epochs=1, engine="inline", out=tmp_path / "run")
    record = tmp_path / "run" / "run.sqlite"
    record.write_bytes(record.read_bytes()[:700])
    assert command(["resume", str(tmp_path / "run")]) == 1
    assert "nothing whole is left" in capsys.readouterr().err


def test_a_full_disk_during_a_commit_ends_in_a_sentence_and_leaves_the_last_whole_checkpoint(tmp_path, reference):
    out = str(tmp_path / "run")

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))

    full = cli(*RUN, "--out", out, preexec_fn=small_files, env={**os.environ, "UNDRIFT_CHECKPOINT_EVERY": "2"})
    assert full.returncode == 1, (full.stdout, full.stderr)
    assert "Traceback" not in full.stderr
    assert "cannot be" in full.stderr
    done = cli("resume", out, "--quiet", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model_sha256"] == reference


def test_a_finished_run_says_so_and_can_get_more_rounds(tmp_path, capsys):
    out = str(tmp_path / "run")
    ud.run("fedavg", clients=4, rounds=2, epochs=1, engine="inline", out=out)
    assert command(["resume", out, "--json"]) == 0
    output = capsys.readouterr()
    assert "finished" in output.err
    assert json.loads(output.out)["rounds"] == 2
    assert command(["resume", out, "--rounds", "4", "--quiet", "--json"]) == 0
    more = json.loads(capsys.readouterr().out)
    straight = ud.run("fedavg", clients=4, rounds=4, epochs=1, engine="inline", out=False)
    assert more["rounds"] == 4
    assert more["model_sha256"] == straight.summary["model_sha256"]  # fedavg has no schedule


def test_bad_resumes_are_refused_with_the_reason(tmp_path, capsys):
    assert command(["resume", str(tmp_path)]) == 2
    assert "is not a run" in capsys.readouterr().err
    stopped(tmp_path / "run", 1)
    with pytest.raises(BadRequest, match="data are not those"):
        resume(tmp_path / "run", federation=tiny(5, seed=7), model=network)
    with pytest.raises(BadRequest, match="model is not the one"):
        resume(tmp_path / "run", federation=tiny(5), model=lambda: small_network(5, 3))
    with pytest.raises(BadRequest, match="method is not the one"):
        resume(tmp_path / "run", federation=tiny(5), model=network, method="fedavg")
    assert command(["resume", str(tmp_path / "run")]) == 2
    assert "ud.resume(RUN" in capsys.readouterr().err


def test_a_run_in_use_by_another_process_is_refused(tmp_path):
    stopped(tmp_path / "run", 1)
    holder = subprocess.Popen(
        [sys.executable, "-c", "import fcntl, sys, time; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX);"
         "print('held', flush=True); time.sleep(30)", str(tmp_path / "run" / "lock")], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        with pytest.raises(BadRequest, match="in use by another process"):
            again(tmp_path / "run")
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_old_checkpoints_and_segments_are_collected(tmp_path):
    ud.run("scaffold", tiny(5), model=network, out=tmp_path / "run", checkpoint_every=1, **{**SETTINGS, "rounds": 12})
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 2
    assert len(list((tmp_path / "run" / "states").iterdir())) <= 6


def test_states_beyond_the_memory_budget_are_read_from_disk(undisturbed, tmp_path):
    result = ud.run("scaffold", tiny(5), model=network, out=tmp_path / "run", memory=1e-6, **SETTINGS)
    assert torch.equal(result.vector, undisturbed.vector)


def test_stop_at_ends_the_run_when_validation_accuracy_is_reached():
    result = ud.run("fedavg", clients=4, rounds=50, validation=0.2, stop_at=0.5, engine="inline", out=False)
    assert result.summary["rounds"] < 50
    assert result.summary["stages"]["G"]["validation_accuracy"] >= 0.5
