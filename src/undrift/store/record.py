"""`run.sqlite`, the record of a run: one transaction per round, and other programs can read it during the run.

Scripts rely on the tables (docs/formats.md). `states` is internal to the store: where each version of a client's state
or shelf row is, and since which checkpoint it is the committed one. `checksums` has a checksum per table and round
(`store/checksums.py`), `texts` the text of run.toml as the run wrote it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from undrift.core import system
from undrift.core.errors import BadRequest, RunFailed
from undrift.core.headline import ACCURACY, Headline
from undrift.store import checksums

TABLES = """
CREATE TABLE IF NOT EXISTS rounds(round INTEGER PRIMARY KEY, seconds REAL, lr REAL, cohort TEXT);
CREATE TABLE IF NOT EXISTS metrics(round INTEGER, client INTEGER, stage TEXT, data TEXT, metric TEXT, value REAL);
CREATE TABLE IF NOT EXISTS notes(round INTEGER, client INTEGER, part TEXT, name TEXT, value TEXT);
CREATE TABLE IF NOT EXISTS events(round INTEGER, client INTEGER, kind TEXT, detail TEXT);
CREATE TABLE IF NOT EXISTS times(round INTEGER, what TEXT, seconds REAL);
CREATE TABLE IF NOT EXISTS clients(client INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE IF NOT EXISTS files(round INTEGER, path TEXT, sha256 TEXT);
CREATE TABLE IF NOT EXISTS states(checkpoint INTEGER, kind TEXT, client INTEGER, version INTEGER, path TEXT,
                                  start INTEGER, length INTEGER, sha256 TEXT);
CREATE TABLE IF NOT EXISTS texts(path TEXT, text TEXT);
CREATE TABLE IF NOT EXISTS checksums(round INTEGER, name TEXT, rows INTEGER, crc32 INTEGER, UNIQUE (round, name));
CREATE INDEX IF NOT EXISTS metrics_by_stage ON metrics(stage, data, metric, round);
"""
HISTORY = (
    "resumed",
    "worker",
    "quorum",
    "joined",
    "refused",
    "rollback",
)  # these stay when their round is computed again
# What reading a damaged record can raise. SQLite puts names from the file into its messages, which need not be UTF-8.
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
# The note is of round 0. The rows of later rounds, which may be many, are not looked at.
HEADLINE = (
    "SELECT value FROM notes WHERE part = 'task' AND name = 'headline' AND rowid < "
    "COALESCE((SELECT rowid FROM notes WHERE round > 0 ORDER BY rowid LIMIT 1), 9223372036854775807) LIMIT 1"
)
Metric = tuple[int, int | None, str, str, str, float]  # round, client, stage, data, metric, value
Note = tuple[int, int | None, str, str, str]  # round, client, part, name, JSON
Event = tuple[int, int | None, str, str]  # round, client, kind, detail


class Record:
    """The open database of a run. `path=None` keeps it in memory. A read-only one creates and changes no file."""

    def __init__(self, path: Path | None, read_only: bool = False) -> None:
        self.path = path
        self.mark: int | None = None  # a file that says how many rounds are committed, as a file descriptor
        self.lock = threading.RLock()  # two threads commit: one the rounds, one the checkpoints
        if path is not None and read_only:
            self.db = read_only_connection(path)
        else:
            self.db = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
        weakref.finalize(self, self.db.close)  # a result without a folder reads its record until it is gone
        if path is None or not read_only:
            self._create()

    def _create(self) -> None:
        """Make the tables of a new record, and the checksums of one that an older version wrote."""
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=NORMAL")
        has_checksums = checksums.has_table(self.db, "checksums")
        self.db.executescript(TABLES)
        if not has_checksums:
            with self.transaction():
                checksums.add_all(self.db)

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
            self.add(
                rounds=[(round, seconds, lr, json.dumps(list(cohort)))],
                metrics=metrics,
                notes=notes,
                events=events,
                times=[(round, *spent) for spent in (times or {}).items()],
            )
        self.mark_rounds(round + 1)

    def add(self, **tables: Iterable[tuple[Any, ...]]) -> None:
        """Insert rows of rounds, with their checksums, in an open transaction."""
        stored = {name: rows for name, given in tables.items() if (rows := checksums.as_stored(name, given))}
        for name, rows in stored.items():
            self.db.executemany(f"INSERT INTO {name} VALUES ({','.join('?' * len(rows[0]))})", rows)
        checksums.add(self.db, stored)

    def name_clients(self, names: Sequence[str]) -> None:
        """Before round 0: what the clients are called, if they have names."""
        if names:
            with self.transaction():
                self.db.executemany("INSERT OR REPLACE INTO clients VALUES (?,?)", list(enumerate(names)))

    def event(self, round: int, client: int | None, kind: str, detail: str) -> None:
        with self.transaction():
            self.add(events=[(round, client, kind, detail)])

    def mark_rounds(self, rounds: int) -> None:
        """Note the number of committed rounds outside the record, so that a record that lost some is noticed."""
        if self.mark is not None:
            os.lseek(self.mark, 0, os.SEEK_SET)
            os.write(self.mark, f"{rounds:>12}\n".encode())

    def keep_text(self, path: str, text: str, replace: bool = True) -> None:
        """Keep the text of a file as the run wrote it; without `replace` beside the texts it had before."""
        with self.transaction(durable=not replace):
            if replace:
                self.db.execute("DELETE FROM texts WHERE path = ?", (path,))
            self.db.execute("INSERT INTO texts VALUES (?,?)", (path, text))
            checksums.seal(self.db, "texts")

    def transaction(self, durable: bool = False) -> Transaction:
        """A context in which everything is committed, or nothing. `durable` waits until it is on disk, and with it
        everything that was committed before."""
        return Transaction(self, durable)

    def sync(self) -> None:
        """Wait until everything committed is on disk. The other thread may go on committing meanwhile, which it could
        not during a COMMIT with `synchronous=FULL`."""
        if self.path is None:
            return
        mode = "rb+" if system.NAME == "nt" else "rb"  # Windows syncs only what may be written
        # Where the file system has no WAL, every COMMIT is synced. What left the log is in run.sqlite, synced by SQLite.
        with contextlib.suppress(FileNotFoundError), open(f"{self.path}-wal", mode) as log:
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
            checksums.forget_from(self.db, round)
        self.mark_rounds(round)

    def all(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        try:
            with self.lock:
                return self.db.execute(query, values).fetchall()
        except UNREADABLE as error:
            raise RunFailed(f"the record of the run cannot be read ({error})") from None

    def damage(self) -> list[str]:
        """One sentence for each way in which the record is not as it was written. The run may be going on."""
        if self.path is not None and checksums.is_as_noted(self.path):
            return []
        try:
            with self.lock:
                self.db.execute("BEGIN")  # one state of the record, whatever is committed meanwhile
                try:
                    found = [text for (text,) in self.db.execute("PRAGMA integrity_check(1)") if text != "ok"]
                    changed = checksums.changed(self.db)
                finally:
                    self.db.execute("ROLLBACK")
        except (*UNREADABLE, TypeError, ValueError) as error:
            return [f"run.sqlite is damaged ({error})"]
        sentences = [f"run.sqlite is damaged ({text.splitlines()[-1]})" for text in found]
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            sentences.append(f"run.sqlite was changed after it was written: {', '.join(changed[:3])}{more}")
        return sentences

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
            self.leave()
            raise

    def leave(self) -> None:
        """Also where Ctrl-C comes between two lines: no transaction stays open."""
        try:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
        finally:
            self.lock.release()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.db.execute("COMMIT" if kind is None else "ROLLBACK")
        finally:
            self.leave()
        if self.durable and kind is None:
            self.record.sync()


def read_only_connection(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing. Without a log nobody has the record open, and the file is read as it is: SQLite
    would else create a log, which it cannot in a folder that may not be written."""
    with open(path, "rb") as file:
        uses_log = file.read(20)[18:20] == b"\2\2"
    alone = uses_log and not os.path.exists(f"{path}-wal")
    place = Path(os.path.abspath(path)).as_uri()  # a name may hold ? and #, which end the path of a URI
    return sqlite3.connect(
        f"{place}?mode=ro{'&immutable=1' * alone}", uri=True, isolation_level=None, check_same_thread=False
    )


class ClientNames(dict[int, str]):
    """The names of clients that have one."""

    def of(self, client: int | None) -> str:
        """In a sentence: `oslo`, `client 3`, `server`."""
        return "server" if client is None else self.get(client) or f"client {client}"

    def short(self, client: int | None) -> str:
        """Where all are clients: `oslo`, `3`."""
        return "server" if client is None else self.get(client) or str(client)


def client_names(query: Callable[..., list[tuple[Any, ...]]]) -> ClientNames:
    """The names in a record. Records of earlier versions have none."""
    if not query("SELECT 1 FROM sqlite_master WHERE type='table' AND name='clients'"):
        return ClientNames()
    return ClientNames(query("SELECT client, name FROM clients ORDER BY client"))


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    """Queries on a run's record, read-only, through one connection. The run may be going on. Keep it short: a connection
    that stays open would keep SQLite's log in the folder after the run has ended."""
    path = folder / "run.sqlite"
    if not path.exists():
        raise BadRequest(f"{folder} is not a run: it has no run.sqlite")
    try:
        with contextlib.closing(read_only_connection(path)) as db:
            yield lambda query, values=(): db.execute(query, values).fetchall()
    except UNREADABLE as error:
        raise BadRequest(f"the record in {path} cannot be read: {error}") from None


def rows_of(folder: Path, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The rows of a query on a run's record, read-only. It may be called while the run is going on."""
    with reading(folder) as rows:
        return rows(query, values)


def headline_of(query: Callable[..., list[tuple[Any, ...]]]) -> Headline:
    """The metric that ranks a run; accuracy where its record says nothing else."""
    found = query(HEADLINE)
    return Headline(**json.loads(found[0][0])) if found else ACCURACY


def kept_texts(folder: Path, name: str) -> tuple[list[str], int | None]:
    """(the texts of a file that the run wrote, the newest last; the CRC-32 of their table, as it was written). A record
    that cannot be read has none; whoever needs more of it says so."""
    try:
        with contextlib.closing(read_only_connection(folder / "run.sqlite")) as db:
            if not checksums.has_table(db, "texts"):
                return [], None
            texts = [text for (text,) in db.execute("SELECT text FROM texts WHERE path = ? ORDER BY rowid", (name,))]
            return texts, checksums.written(db, "texts")
    except UNREADABLE:
        return [], None
