"""`run.sqlite`, the record of a run: one transaction per round, and other programs can read it during the run.

Scripts rely on the tables (docs/formats.md). `states` is internal to the store: where each version of a client's state
or shelf row is, and since which checkpoint it is the committed one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest

TABLES = """
CREATE TABLE IF NOT EXISTS rounds(round INTEGER PRIMARY KEY, seconds REAL, lr REAL, cohort TEXT);
CREATE TABLE IF NOT EXISTS metrics(round INTEGER, client INTEGER, stage TEXT, data TEXT, metric TEXT, value REAL);
CREATE TABLE IF NOT EXISTS notes(round INTEGER, client INTEGER, part TEXT, name TEXT, value TEXT);
CREATE TABLE IF NOT EXISTS events(round INTEGER, client INTEGER, kind TEXT, detail TEXT);
CREATE TABLE IF NOT EXISTS times(round INTEGER, what TEXT, seconds REAL);
CREATE TABLE IF NOT EXISTS files(round INTEGER, path TEXT, sha256 TEXT);
CREATE TABLE IF NOT EXISTS states(checkpoint INTEGER, kind TEXT, client INTEGER, version INTEGER, path TEXT,
                                  start INTEGER, length INTEGER, sha256 TEXT);
CREATE INDEX IF NOT EXISTS metrics_by_stage ON metrics(stage, data, metric, round);
"""
HISTORY = (
    "resumed",
    "worker",
    "quorum",
    "joined",
    "refused",
    "rollback",
)  # events that stay when their round is computed again
Metric = tuple[int, int | None, str, str, str, float]  # round, client, stage, data, metric, value
Note = tuple[int, int | None, str, str, str]  # round, client, part, name, JSON
Event = tuple[int, int | None, str, str]  # round, client, kind, detail


class Record:
    """The open database of a run. `path=None` keeps it in memory."""

    def __init__(self, path: Path | None, read_only: bool = False) -> None:
        self.path = path
        self.lock = threading.RLock()  # two threads commit: one the rounds, one the checkpoints
        if read_only:
            self.db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
            return
        self.db = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=NORMAL")
        self.db.executescript(TABLES)

    def commit_round(
        self,
        round: int,
        seconds: float,
        lr: float,
        cohort: Sequence[int],
        metrics: Iterable[Metric],
        notes: Iterable[Note],
        events: Iterable[Event],
        times: Mapping[str, float] | None = None,
    ) -> None:
        """Write all rows of a round in one transaction. It does not wait for the disk: the next checkpoint does."""
        with self.transaction():
            self.db.execute("INSERT INTO rounds VALUES (?,?,?,?)", (round, seconds, lr, json.dumps(list(cohort))))
            self.db.executemany("INSERT INTO metrics VALUES (?,?,?,?,?,?)", metrics)
            self.db.executemany("INSERT INTO notes VALUES (?,?,?,?,?)", notes)
            self.db.executemany("INSERT INTO events VALUES (?,?,?,?)", events)
            self.db.executemany(
                "INSERT INTO times VALUES (?,?,?)", [(round, *spent) for spent in (times or {}).items()]
            )

    def event(self, round: int, client: int | None, kind: str, detail: str) -> None:
        with self.transaction():
            self.db.execute("INSERT INTO events VALUES (?,?,?,?)", (round, client, kind, detail))

    def transaction(self, durable: bool = False) -> Transaction:
        """A context in which everything is committed, or nothing. `durable` waits until it is on disk, and with it
        everything that was committed before."""
        return Transaction(self, durable)

    def sync(self) -> None:
        """Wait until everything committed is on disk. The other thread may go on committing meanwhile, which it could
        not during a COMMIT with `synchronous=FULL`."""
        if self.path is None:
            return
        # Where the file system has no WAL, every COMMIT is synced. What left the log is in run.sqlite, synced by SQLite.
        with contextlib.suppress(FileNotFoundError), open(f"{self.path}-wal", "rb") as log:
            os.fsync(log.fileno())

    def forget_from(self, round: int) -> None:
        """Delete the rows of rounds that will be computed again, but keep the events of `HISTORY`."""
        with self.transaction(durable=True):
            for table in ("rounds", "metrics", "notes", "times"):
                self.db.execute(f"DELETE FROM {table} WHERE round >= ?", (round,))
            self.db.execute(
                f"DELETE FROM events WHERE round >= ? AND kind NOT IN ({','.join('?' * len(HISTORY))})",
                (round, *HISTORY),
            )

    def all(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self.lock:
            return self.db.execute(query, values).fetchall()

    def close(self) -> None:
        self.db.close()


class Transaction:
    """BEGIN … COMMIT, or ROLLBACK after an error.

    In WAL mode, `synchronous=NORMAL` keeps the record consistent, but a power cut may undo the last transactions.
    A durable transaction syncs the log after COMMIT. That takes milliseconds, so only those that files depend on do it.
    """

    def __init__(self, record: Record, durable: bool) -> None:
        self.record, self.db, self.lock, self.durable = record, record.db, record.lock, durable

    def __enter__(self) -> None:
        self.lock.acquire()
        try:
            self.db.execute("BEGIN IMMEDIATE")
        except BaseException:
            self.lock.release()
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.db.execute("COMMIT" if kind is None else "ROLLBACK")
        finally:
            self.lock.release()
        if self.durable and kind is None:
            self.record.sync()


def rows_of(folder: Path, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The rows of a query on a run's record, read-only. It may be called while the run is going on."""
    path = folder / "run.sqlite"
    if not path.exists():
        raise BadRequest(f"{folder} is not a run: it has no run.sqlite")
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return db.execute(query, values).fetchall()
    except sqlite3.DatabaseError as error:
        raise BadRequest(f"the record in {path} cannot be read: {error}") from None
    finally:
        db.close()
