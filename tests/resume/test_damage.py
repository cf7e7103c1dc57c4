"""Damage in a run folder is said: which numbers changed, which checkpoint is used, whose state is lost."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
import torch

import undrift as ud
from undrift.cli import command
from undrift.core.errors import BadRequest, RunFailed
from undrift.experiment.resume import DamagedRun
from undrift.store import checksums
from undrift.store.record import Record, rows_of
from undrift.store.run_store import RunStore

spec = importlib.util.spec_from_file_location("mutations", Path(__file__).with_name("mutations.py"))
assert spec is not None
assert spec.loader is not None
mutations = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mutations)

QUICK = {
    "rounds": 4,
    "epochs": 1,
    "clients": 8,
    "cohort": 2,
    "model": "mlp(4)",
    "engine": "inline",
    "evaluate_every": 1,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished run of four rounds in which two clients of four train, with a checkpoint after each round."""
    return ud.run("apfl", out=tmp_path_factory.mktemp("damage") / "run", checkpoint_every=1, **QUICK)


@pytest.fixture
def run(made, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(made.folder, "run"))


def flip(path: Path, place: int = -5) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))


def change(folder: Path, statement: str) -> None:
    db = sqlite3.connect(folder / "run.sqlite")
    with db:
        db.execute(statement)
    db.close()


# ---- checkpoints and states ----------------------------------------------------------------------------------------


def test_a_run_that_falls_back_to_an_older_checkpoint_says_so(run, capsys):
    flip(run / "checkpoints" / "00000004.safetensors")
    with pytest.warns(DamagedRun, match="checkpoint 4 is not whole.*checkpoint 3 is used instead"):
        result = ud.load(run)
    assert result.server_state.round == 3
    assert result.summary["damage"] == result.damage
    for words in (["show", "run"], ["show", "run", "--json"]):
        assert command(words) == 0
        assert "note: checkpoint 4 is not whole" in capsys.readouterr().err


def test_a_checkpoint_that_the_record_lost_is_missed(run):
    change(run, "DELETE FROM files WHERE round = 4")
    with pytest.warns(DamagedRun) as said:
        assert ud.load(run).server_state.round == 3
    assert "checkpoint 4 is not named by run.sqlite" in str(said[0].message)


def test_a_damaged_older_segment_spoils_neither_the_global_model_nor_other_clients(made, run):
    newest = dict(rows_of(run, "SELECT client, MAX(path) FROM states GROUP BY client"))
    name = min(newest.values())  # the newest versions of these clients are older than the last checkpoint
    oldest, lost = run / "states" / name, {client for client, path in newest.items() if path == name}
    assert name < max(newest.values())
    oldest.write_bytes(b"")
    result = ud.load(run)
    assert torch.equal(result.vector, made.vector)
    x = made.setup.federation.test_x[:5]
    for client in range(8):
        if client in lost:
            with pytest.raises(RunFailed, match=f"state of client {client} .*damaged"):
                result.personal(client)
        else:
            assert torch.equal(result.personal(client)(x), made.personal(client)(x))
    with pytest.raises(RunFailed, match="nothing whole is left"):
        ud.resume(run, rounds=5)


def test_a_lost_row_of_the_states_index_is_noticed(made, run):
    """Without the row, a client would be taken for one that never trained."""
    change(run, "DELETE FROM states WHERE rowid = (SELECT MAX(rowid) FROM states)")
    with pytest.warns(DamagedRun, match=r"index in run\.sqlite is damaged"):
        result = ud.load(run)
    assert torch.equal(result.vector, made.vector)
    with pytest.raises(RunFailed, match=r"index in run\.sqlite is damaged"):
        result.personal(0)


# ---- numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE metrics SET value = value + 1e-9 WHERE round = 2 AND stage = 'G' AND metric = 'accuracy'",
         "metrics of round 2"),
        ("DELETE FROM notes WHERE rowid = (SELECT MIN(rowid) FROM notes WHERE round = 1)", "notes of round 1"),
        ("INSERT INTO events VALUES (3, 1, 'dropped', 'never happened')", "events of round 3 (1 of 0 rows)"),
        ("UPDATE rounds SET cohort = '[0, 0]' WHERE round = 0", "rounds of round 0"),
        ("UPDATE times SET seconds = 0 WHERE round = 3", "times of round 3"),
        ("UPDATE texts SET text = 'rounds = 9'", "texts"),
        ("UPDATE metrics SET value = 'many' WHERE metric = 'accuracy'", "metrics of round 0"),
    ],
)  # fmt: skip
def test_changed_numbers_are_noticed_and_are_no_traceback(statement, words, run, capsys):
    change(run, statement)
    for use in (["show", "run"], ["report", "run"], ["export", "run"], ["resume", "run", "--rounds", "5", "--quiet"]):
        code = command(use)
        said = capsys.readouterr().err
        assert code == 0 or "many" in statement
        assert words in said, use
    if "many" not in statement:
        details = [detail for (detail,) in rows_of(run, "SELECT detail FROM events WHERE kind = 'damaged'")]
        assert any(words in detail for detail in details)


@pytest.mark.parametrize("method", ["fedavg", "flood+fliu@bound"])
def test_runs_that_are_stopped_resumed_and_given_more_rounds_are_not_called_damaged(method, tmp_path):
    def stop(round, *rest):
        if round == 2:
            raise KeyboardInterrupt

    callback = ud.experiment.callback.RunCallback()
    callback.on_round = stop
    with pytest.raises(KeyboardInterrupt):
        ud.run(method, out=tmp_path / "run", callback=callback, checkpoint_every=2, diagnose="drift", **QUICK)
    assert ud.load(tmp_path / "run").damage == []
    assert ud.resume(tmp_path / "run").damage == []
    assert ud.resume(tmp_path / "run", rounds=6).damage == []
    assert ud.load(tmp_path / "run").damage == []


def test_a_checksum_is_of_what_is_stored(tmp_path):
    """SQLite keeps a NaN as NULL and a whole number in a REAL column as a float. Rows may come in several parts."""
    record = Record(tmp_path / "run.sqlite")
    metrics = [
        (0, None, "G", "global", "loss", float("nan")),
        (0, 1, "L1", "own", "accuracy", 1),
        (0, 1, "Ω", "é", "🙂", 0.1),
    ]
    record.event(0, None, "resumed", "from\x00 \x1b[31m")
    record.commit_round(0, 1, 0.5, [0, 1], metrics, [(0, 1, "p", "n", "[1, 2]")], [(0, 1, "late", "x")], {"orders": 2})
    record.commit_round(
        1, 1, 0.5, [1], [(0, 0, "L1", "own", "accuracy", 0.5), (1, 1, "L2", "own", "accuracy", 0.5)], [], []
    )
    assert record.damage() == []
    record.forget_from(1)
    assert record.damage() == []
    record.forget_from(0)
    assert record.damage() == []
    assert rows_of(tmp_path, "SELECT kind FROM events") == [("resumed",)]
    record.close()


def test_a_round_that_is_committed_while_the_record_is_checked_is_no_damage(tmp_path, monkeypatch):
    record = Record(tmp_path / "run.sqlite")
    record.commit_round(0, 1, 0.5, [0], [(0, 1, "L1", "own", "accuracy", 1)], [], [])
    found_in, rounds = checksums.found_in, iter(range(1, 100))

    def slowly(db, name):
        record.commit_round(next(rounds), 1, 0.5, [0], [(0, 2, "L1", "own", "accuracy", 1)], [], [])
        return found_in(db, name)

    monkeypatch.setattr(checksums, "found_in", slowly)
    reader = Record(tmp_path / "run.sqlite", read_only=True)
    assert reader.damage() == []
    assert next(rounds) > 2
    reader.close()
    record.close()


class Interrupted:
    """A connection with Ctrl-C right before or right after a statement."""

    def __init__(self, db, statement, before):
        self.db, self.statement, self.before = db, statement, before

    def __getattr__(self, name):
        return getattr(self.db, name)

    def execute(self, query, *values):
        if not query.startswith(self.statement):
            return self.db.execute(query, *values)
        self.statement = "only once"
        if not self.before:
            self.db.execute(query, *values)
        raise KeyboardInterrupt


@pytest.mark.parametrize("statement", ["BEGIN", "COMMIT"])
@pytest.mark.parametrize("before", [True, False])
def test_the_record_can_be_used_after_control_c_in_a_transaction(tmp_path, statement, before):
    record = Record(tmp_path / "run.sqlite")
    record.db, db = Interrupted(record.db, statement, before), record.db
    with pytest.raises(KeyboardInterrupt):
        record.commit_round(0, 1.0, 0.5, [0], [], [], [])
    record.db = db
    committed = statement == "COMMIT" and not before
    assert record.all("SELECT COUNT(*) FROM rounds") == [(int(committed),)]
    record.commit_round(1, 1.0, 0.5, [0], [], [], [])
    assert record.damage() == []
    record.close()


def test_the_checksum_continues():
    rows = [(3, 1, "a", 0.25), (3, 2, "b", None)]
    assert checksums.crc(rows) == checksums.crc(rows[1:], checksums.crc(rows[:1]))
    assert checksums.crc([(3,)]) == 0x196CF0C6  # CRC-32 of "(3,)": it may never change


def test_the_rows_of_a_record_whose_file_is_the_same_are_not_read(run, monkeypatch):
    """Reading them was most of the time of a report of many runs."""

    def asked(db):
        raise AssertionError

    monkeypatch.setattr(checksums, "changed", asked)
    record = Record(run / "run.sqlite", read_only=True)
    assert record.damage() == []
    (run / "run.sqlite-crc32").unlink()
    with pytest.raises(AssertionError):
        record.damage()
    record.close()


def test_a_changed_record_is_said_to_be_so_after_it_was_written_to_again(run):
    change(run, "UPDATE metrics SET value = value + 1 WHERE round = 1")
    store = RunStore(run)
    store.record.event(4, None, "resumed", "")
    store.close()
    record = Record(run / "run.sqlite", read_only=True)
    assert "metrics of round 1" in record.damage()[0]
    record.close()


def test_rounds_that_were_lost_with_the_log_of_the_record_are_missed(run, capsys):
    assert int((run / "lock").read_text()) == 4
    change(run, "DELETE FROM rounds WHERE round = 3")
    change(run, "DELETE FROM checksums WHERE round = 3")
    assert command(["show", "run"]) == 0
    assert "3 of the 4 rounds that were finished" in capsys.readouterr().err


# ---- names and other files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["50%", "a#b", "who?", "%23#?mode=memory"])
def test_a_folder_may_have_any_name(name, made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(made.folder, Path("runs") / name)
    for words in (["show", name], ["show", name, "--json"], ["report", name], ["export", name], ["runs"],
                  ["resume", name, "--rounds", "5", "--quiet"]):  # fmt: skip
        assert command(words) == 0, capsys.readouterr().err
        assert "note" not in capsys.readouterr().err
    assert ud.load(folder).summary["rounds"] == 5


def test_one_odd_folder_does_not_hide_the_other_runs(made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a#b", "c", "d", "e", "f"):
        shutil.copytree(made.folder, Path("runs") / name)
    Path("runs/c/run.sqlite").write_bytes(b"no record")
    Path("runs/d/run.toml").write_bytes(b"\xff\xfe")
    Path("runs/e/run.toml").unlink()
    Path("runs/e/run.toml").symlink_to(Path("runs/f/run.toml").resolve())
    assert command(["runs", "--json"]) == 0
    output = capsys.readouterr()
    assert {Path(found["run"]).name for found in json.loads(output.out)} == {"a#b", "f"}
    assert len(output.err.splitlines()) == 3


@pytest.fixture
def many(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["compare", "fedavg", "fedprox", "--rounds", "1", "--clients", "3", "--epochs", "1", "--model", "mlp(4)"]
    assert command([*words, "--quiet", "--out", "many"]) == 0
    return Path("many")


def test_damaged_files_of_a_comparison_end_in_a_sentence(many, capsys):
    rows, toml = many / "rows.jsonl", many / "compare.toml"
    text = rows.read_text()
    for damaged in (text.replace('"accuracy": 0', '"accuracy": 1', 1), "[1]\n" + text, '{"x": 1}\n' + text, "\0" * 50):
        rows.write_text(damaged)
        assert command(["compare", "--resume", "many", "--quiet"]) == 2
        said = capsys.readouterr().err
        assert "many/rows.jsonl" in said
        assert "line 1" in said
    rows.write_bytes(b"\xff" + text.encode())
    assert command(["compare", "--resume", "many", "--quiet"]) == 2
    rows.write_text(text[: text.index("\n") - 20])  # cut short by a kill: the run gives the line again
    assert command(["compare", "--resume", "many", "--quiet"]) == 0
    text = toml.read_text()
    for damaged in (
        text.replace("rounds = 1", "rounds = 2"),
        "methods = 5",
        "seeds = []\nmethods = []",
        "\0",
        text[:-30],
    ):
        capsys.readouterr()
        toml.write_text(damaged)
        for words in (["compare", "--resume", "many", "--quiet"], ["report", "many"]):
            assert command(words) == 2
            assert "many/compare.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"run": 1}', "\udcff", '{"run": "a", "sessions": 2, "sizes": {}, "crc32": 1}']
)
def test_a_damaged_roll_is_a_sentence(text, tmp_path):
    from undrift.deploy.server import RunInfo

    RunInfo("abc", 2, {"oslo": 30}).save(tmp_path)
    assert RunInfo.load(tmp_path) == RunInfo("abc", 2, {"oslo": 30})
    (tmp_path / "roll.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(BadRequest, match=r"roll\.json.*restore it, or choose another out"):
        RunInfo.load(tmp_path)


# ---- many ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_damaged_folders_are_the_same_or_say_so_or_are_refused(capsys):
    counts, failures = mutations.soak(150, seed=0)
    with capsys.disabled():
        print(f"\n150 mutations of run folders:\n{mutations.table(counts)}", file=sys.stderr)
    assert failures == []
    for found in counts.values():
        assert set(found) <= {mutations.SAME, mutations.SAID, mutations.REFUSED}
        assert {mutations.SAME, mutations.REFUSED} <= set(found)
    assert any(found.get(mutations.SAID) for found in counts.values())
