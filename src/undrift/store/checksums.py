"""A checksum per table and round of `run.sqlite`, so that numbers that changed after they were written are noticed.

SQLite checks the structure of its file, not the values in it. The checksum of a table's rows of one round is their CRC-32
in the order in which they were written, so a row that comes later continues it. It finds damage. Who forges a row can
forge its checksum as well.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

ROUND_TABLES = ("rounds", "metrics", "notes", "events", "times")  # of each, a row's first column is its round
WHOLE_TABLES = ("files", "texts")  # small ones that change as a whole
WHOLE = -1  # in place of a round
ADD = (
    "INSERT INTO checksums VALUES (?,?,?,?) ON CONFLICT (round, name) DO UPDATE SET "
    "rows = rows + excluded.rows, crc32 = excluded.crc32"
)
Row = tuple[Any, ...]


def crc(rows: Iterable[Row], before: int = 0) -> int:
    """The CRC-32 of rows as SQLite returns them. `before` is that of the rows before them."""
    return zlib.crc32("".join(map(ascii, rows)).encode(), before)


def as_stored(name: str, rows: Iterable[Row]) -> list[Row]:
    """Rows as SQLite will return them: a REAL is a float, and a NaN is NULL."""
    if name == "rounds":
        return [(round, real(seconds), real(lr), cohort) for round, seconds, lr, cohort in rows]
    return [(*row[:-1], real(row[-1])) for row in rows] if name in ("metrics", "times") else list(rows)


def real(value: Any) -> float | None:
    return None if value is None or value != value else float(value)


def add(db: sqlite3.Connection, tables: Mapping[str, Sequence[Row]]) -> None:
    """Continue the checksums of the rounds of these rows, which are inserted in this order."""
    rounds = [row[0] for rows in tables.values() for row in rows]
    if not rounds:
        return
    query = "SELECT round, name, crc32 FROM checksums WHERE round BETWEEN ? AND ?"
    known = {(round, name): found for round, name, found in db.execute(query, (min(rounds), max(rounds)))}
    added = list[Row]()
    for name, rows in tables.items():
        for round, group in groupby(rows, key=itemgetter(0)):
            several, place = list(group), (round, name)
            known[place] = crc(several, known.get(place, 0))
            added.append((*place, len(several), known[place]))
    db.executemany(ADD, added)


def seal(db: sqlite3.Connection, name: str) -> None:
    """The checksum of a small table after it changed."""
    rows = db.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall()
    db.execute("INSERT OR REPLACE INTO checksums VALUES (?,?,?,?)", (WHOLE, name, len(rows), crc(rows)))


def written(db: sqlite3.Connection, name: str) -> int | None:
    """The checksum of a small table, or None without one."""
    if not has_table(db, "checksums"):
        return None
    found = db.execute("SELECT crc32 FROM checksums WHERE round = ? AND name = ?", (WHOLE, name)).fetchone()
    return None if found is None else found[0]


def forget_from(db: sqlite3.Connection, round: int) -> None:
    """After the rows from this round on were deleted, except some events: only the checksums of these are left."""
    db.execute("DELETE FROM checksums WHERE round >= ?", (round,))
    add(db, {"events": db.execute("SELECT * FROM events WHERE round >= ? ORDER BY rowid", (round,)).fetchall()})


def add_all(db: sqlite3.Connection) -> None:
    """Checksums of everything in a record that an older version wrote without any."""
    for name in ROUND_TABLES:
        add(db, {name: db.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall()})
    for name in WHOLE_TABLES:
        seal(db, name)


def found_in(db: sqlite3.Connection, name: str) -> dict[tuple[int, str], tuple[int, int]]:
    """(rows, CRC-32) of a table's rows, by (round, name)."""
    found: dict[tuple[int, str], tuple[int, int]] = {}
    rows = db.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall()
    for round, group in [(WHOLE, rows)] if name in WHOLE_TABLES and rows else groupby(rows, key=itemgetter(0)):
        several = list(group)
        count, before = found.get((round, name), (0, 0))
        found[round, name] = count + len(several), crc(several, before)
    return found


def changed(db: sqlite3.Connection) -> list[str]:
    """What is not as it was written, in words. Nothing, for a record without checksums."""
    if not has_table(db, "checksums"):
        return []
    query = "SELECT round, name, rows, crc32 FROM checksums ORDER BY rowid"
    expected = {(round, name): (rows, crc32) for round, name, rows, crc32 in db.execute(query)}
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for name in (*ROUND_TABLES, *WHOLE_TABLES):
        found |= found_in(db, name)
    words = []
    for place in [*expected, *(place for place in found if place not in expected)]:
        (before, _), (now, _) = expected.get(place, (0, 0)), found.get(place, (0, 0))
        if expected.get(place, (0, 0)) != found.get(place, (0, 0)):
            count = f" ({now} of {before} rows)" if now != before else ""
            words.append(f"{place[1]}{'' if place[0] == WHOLE else f' of round {place[0]}'}{count}")
    return words


def note_file(path: Path) -> None:
    """Note the CRC-32 of a record that is closed and whole. While its file is the same, nobody need look at every row."""
    if not has_log(path):
        note_of(path).write_text(f"{file_crc(path):08x}\n")


def is_as_noted(path: Path) -> bool:
    """Whether the file of a record is bit for bit the one that was noted. What a log holds is not in the file."""
    try:
        return not has_log(path) and note_of(path).read_bytes().strip() == b"%08x" % file_crc(path)
    except OSError:
        return False


def note_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-crc32")


def has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def file_crc(path: Path) -> int:
    return zlib.crc32(path.read_bytes())


def with_crc(table: Mapping[str, Any]) -> dict[str, Any]:
    """What a JSON or TOML file holds, with a CRC-32 of it as the last key."""
    return {**table, "crc32": zlib.crc32(json.dumps(table).encode())}


def without_crc(table: Any) -> dict[str, Any]:
    """The table of `with_crc`. Raises a ValueError if it has changed since. A table without a checksum is older."""
    if not isinstance(table, dict):
        raise ValueError("it holds no table")
    rest = {key: value for key, value in table.items() if key != "crc32"}
    if "crc32" in table and table != with_crc(rest):
        raise ValueError("it was changed since it was written")
    return rest


def has_table(db: sqlite3.Connection, name: str) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone() is not None
