"""Run folders as rows of the live page: whatever is in a folder, it is shown as what it is."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from undrift.core.headline import ACCURACY
from undrift.live.index import Index
from undrift.live.locks import holders, tried
from undrift.live.records import read_run
from undrift.store.record import Record, headline_of, reading

spec = importlib.util.spec_from_file_location("made", Path(__file__).with_name("made.py"))
assert spec
assert spec.loader
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)
made_run = made.made_run


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in sorted(folder.rglob("*"))}


def test_a_finished_run_has_its_last_value_and_no_time_left(tmp_path):
    row = read_run("a", made_run(tmp_path / "a", rounds=10, done=10), running=False)
    assert (row.state, row.done, row.rounds, row.left, row.resume) == ("finished", 10, 10, None, "")
    assert row.value == pytest.approx(0.59)
    assert row.headline.name == "G accuracy"


def test_a_run_that_goes_on_has_a_time_left_and_one_that_does_not_a_command(tmp_path):
    folder = made_run(tmp_path / "my run", rounds=10, done=4, seconds=2.0)
    running, stopped = (read_run("a", folder, running=flag) for flag in (True, False))
    assert (running.state, running.left) == ("running", 12.0)
    assert (stopped.state, stopped.left) == ("stopped", None)
    assert stopped.resume == f"undrift resume '{folder}'"


def test_a_run_that_stopped_early_by_itself_is_finished(tmp_path):
    assert read_run("a", made_run(tmp_path / "a", rounds=10, done=4, finished=True), False).state == "finished"


def test_a_failed_run_says_why_until_its_round_is_there(tmp_path):
    failed = [(4, None, "failed", "every client was left out")]
    row = read_run("a", made_run(tmp_path / "a", rounds=10, done=4, events=failed), False)
    assert (row.state, row.why) == ("failed", "every client was left out")
    resumed = read_run("b", made_run(tmp_path / "b", rounds=10, done=6, events=failed), False)
    assert resumed.state == "stopped"


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda folder: (folder / "run.toml").unlink(), "half-written"),
        (lambda folder: (folder / "run.sqlite").unlink(), "half-written"),
        (lambda folder: (folder / "run.toml").write_text("method = "), "run.toml"),
        (lambda folder: (folder / "run.toml").write_text('method = "fedavg"\nrounds = 3'), "no key data"),
        (lambda folder: (folder / "run.sqlite").write_bytes(b"no database" * 99), "not a database"),
        (lambda folder: (folder / "run.sqlite").write_bytes(b""), "no such table"),
        (lambda folder: (folder / "out").symlink_to("/etc"), "a symbolic link"),
    ],
)
def test_a_damaged_folder_is_a_row_that_says_so(tmp_path, damage, says):
    folder = made_run(tmp_path / "a")
    damage(folder)
    row = read_run("a", folder, False)
    assert row.state == "broken"
    assert says in row.why


def test_the_headline_without_a_global_model_is_that_of_the_clients(tmp_path):
    folder = made_run(tmp_path / "a")
    import sqlite3

    with sqlite3.connect(folder / "run.sqlite") as db:
        db.execute("DELETE FROM metrics WHERE stage = 'G'")
    db.close()
    row = read_run("a", folder, False)
    assert (row.headline.name, row.value) == ("L1 accuracy", pytest.approx(0.59))


def test_reading_changes_no_file(tmp_path):
    made_run(tmp_path / "a")
    made_run(tmp_path / "b", done=3)
    before = snapshot(tmp_path)
    index = Index([tmp_path])
    index.poll()
    with reading(tmp_path / "a") as query:
        assert query("SELECT COUNT(*) FROM rounds") == [(10,)]
    assert snapshot(tmp_path) == before


def test_runs_appear_change_and_vanish(tmp_path):
    index = Index([tmp_path])
    assert index.poll() is False
    assert index.runs == {}
    folder = made_run(tmp_path / "deep" / "a", done=3)
    assert index.poll()
    assert [(row.key, row.done) for row in index.runs.values()] == [("deep/a", 3)]
    assert not index.poll()
    record = made.Record(folder / "run.sqlite")
    made.add_round(record, 3)
    assert index.poll()
    assert index.runs["deep/a"].done == 4
    record.close()
    index.poll()
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    assert index.poll()
    assert index.runs == {}


def test_links_are_not_followed_and_what_is_inside_a_run_is_its_own(tmp_path):
    outside = made_run(tmp_path / "outside" / "secret")
    inside = tmp_path / "runs"
    made_run(inside / "a")
    (inside / "link").symlink_to(outside)
    index = Index([inside])
    index.poll()
    assert list(index.runs) == ["a"]


def test_roots_of_the_same_name_have_keys_of_their_own(tmp_path):
    made_run(tmp_path / "x" / "run")
    made_run(tmp_path / "y" / "run")
    index = Index([tmp_path / "x" / "run", tmp_path / "y" / "run"])
    index.poll()
    assert list(index.runs) == ["run", "run-2"]


def test_a_comparison_has_its_runs_but_not_replaced_ones(tmp_path):
    study = tmp_path / "c"
    for name in ("00-fedavg-seed0", "00-fedavg-seed0.old-1", "01-fliu-seed0"):
        made_run(study / name)
    (study / "compare.toml").write_text("")
    index = Index([tmp_path])
    index.poll()
    assert [row.key for row in index.studies["c"].runs] == ["c/00-fedavg-seed0", "c/01-fliu-seed0"]


def test_a_held_lock_is_seen_without_taking_it(tmp_path):
    path = tmp_path / "lock"
    path.write_text("")
    assert not holders()(path)
    with open(path, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holders()(path)
        assert tried(path)
    assert not holders()(path)
    assert not tried(path)
    assert not holders()(tmp_path / "missing")


def test_a_run_that_was_killed_is_stopped(tmp_path):
    """The lock is given up by the system, however the process ended."""
    folder = made_run(tmp_path / "a", done=3)
    script = f"""
import os, time
from undrift.core import system
system.lock(os.open({str(folder / "lock")!r}, os.O_RDWR))
print("locked", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    index = Index([tmp_path])
    index.poll()
    assert index.runs["a"].state == "running"
    process.kill()
    process.wait()
    process.stdout.close()
    assert index.poll()
    assert index.runs["a"].state == "stopped"
    assert index.runs["a"].resume == f"undrift resume {folder}"


def test_nothing_of_the_live_page_imports_torch(tmp_path):
    """Of all that does not need Starlette: reading, and making every page, that of a race and of a preset among them."""
    made_run(tmp_path / "a", events=[(1, 0, "late", "too late")])
    made_run(tmp_path / "d", deploy={"sites": ["oslo"], "labels": ["x", "y"], "shape": [1, 2, 2]})
    made_run(tmp_path / "c" / "00-fedavg-seed0")
    (tmp_path / "c" / "compare.toml").write_text('seeds = [[0, 0]]\n[[methods]]\nmethod = "fedavg"\n')
    preset = 'preset = "flood/table5"\nscale = "quick"\n[options]\n'
    for name, file, text in (("r", "advise.toml", 'budget = "3m"'), ("p", "paper.toml", preset)):
        made_run(tmp_path / name / "000-fedavg_lr=0.1-seed0")
        (tmp_path / name / file).write_text(text)
    script = f"""
import sys
from pathlib import Path
from undrift.live import deployment_view, run_view, runs_view, study_view
from undrift.live.index import Index
index = Index([Path({str(tmp_path)!r})])
index.poll()
pages = [runs_view.sections(index), run_view.sections(index.runs["a"], 0), deployment_view.sections(index.runs["d"]),
         *(study_view.sections(index, index.studies[name]) for name in "crp")]
print([len(page) > 1 for page in pages], sorted({{"torch", "scipy.stats"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "[True, True, True, True, True, True] []\n", done.stderr


def test_a_poll_of_runs_that_did_not_change_reads_no_record(tmp_path, monkeypatch):
    for number in range(5):
        made_run(tmp_path / str(number))
    index = Index([tmp_path])
    index.poll()
    asked = []
    monkeypatch.setattr("undrift.live.index.read_run", lambda *given: asked.append(given) or read_run(*given))
    time.sleep(0.01)
    assert not index.poll()
    assert asked == []
    os.utime(tmp_path / "3" / "run.sqlite")
    index.poll()
    assert [key for key, *_ in asked] == ["3"]


def test_the_headline_is_found_without_reading_the_notes_of_later_rounds(tmp_path):
    """A list of a thousand runs asks each for it, and a long run has a hundred thousand notes."""
    steps = {}
    for rounds in (10, 200):
        record = Record(tmp_path / f"{rounds}.sqlite")
        for round in range(rounds):
            notes = [(round, client, "size", "weight", "0.1") for client in range(20)]
            record.commit_round(round, 1.0, 0.1, [0], [], notes, [])
        assert headline_of(record.all) == ACCURACY
        steps[rounds] = 0

        def count(rounds=rounds):
            steps[rounds] += 1

        record.db.set_progress_handler(count, 1)
        headline_of(record.all)
        record.close()
    assert steps[10] == steps[200]
