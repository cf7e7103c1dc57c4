"""`run.sqlite`: what happened, one transaction per round, readable by anything while the run goes on.

The tables are a contract for scripts (docs/formats.md). `states` is the store's own: where each version of a client's
state or shelf row lies, and since which checkpoint it is the committed one.
"""

from __future__ import annotations

import json
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
HISTORY = ("resumed", "worker", "quorum", "joined", "refused")  # kinds of events that no repetition undoes
Metric = tuple[int, int | None, str, str, str, float]  # round, client, stage, data, metric, value
Note = tuple[int, int | None, str, str, str]  # round, client, part, name, JSON
Event = tuple[int, int | None, str, str]  # round, client, kind, detail


class Record:
    def __init__(self, path: Path | None, read_only: bool = False) -> None:
        self.path = path
        self.lock = threading.RLock()  # rounds and checkpoints are committed by two threads
        if read_only:
            self.db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
            return
        self.db = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=NORMAL")
        self.db.executescript(TABLES)

    def commit_round(
        self, round: int, seconds: float, lr: float, cohort: Sequence[int], metrics: Iterable[Metric],
        notes: Iterable[Note], events: Iterable[Event], times: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
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

    def transaction(self) -> Transaction:
        return Transaction(self.db, self.lock)

    def forget_from(self, round: int) -> None:
        """Drop the rows of rounds that are about to be computed again (the events that say so stay)."""
        with self.transaction():
            for table in ("rounds", "metrics", "notes", "times"):
                self.db.execute(f"DELETE FROM {table} WHERE round >= ?", (round,))
            self.db.execute(
                f"DELETE FROM events WHERE round >= ? AND kind NOT IN ({','.join('?' * len(HISTORY))})",
                (round, *HISTORY),
            )

    def all(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self.lock:
            return self.db.execute(query, values).fetchall()

    def close(self) -> None:
        self.db.close()


class Transaction:
    """BEGIN … COMMIT, or nothing at all."""

    def __init__(self, db: sqlite3.Connection, lock: threading.RLock) -> None:
        self.db, self.lock = db, lock

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


def rows_of(folder: Path, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Rows of a run's record, read-only, also while the run goes on."""
    import sqlite3

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
