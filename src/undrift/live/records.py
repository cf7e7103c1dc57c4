"""One run folder as a row of the table: what it is, how far it is, and its state. Whatever is in the folder, this gives a row."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest
from undrift.core.files import read_toml
from undrift.core.headline import ACCURACY, Headline
from undrift.core.schema import check
from undrift.experiment.options import Options
from undrift.store.own_files import refuse_links
from undrift.store.record import headline_of, reading

STATES = {"running": "▶", "finished": "✓", "stopped": "■", "failed": "✗", "starting": "…", "broken": "!"}
Query = Callable[..., list[tuple[Any, ...]]]
NEEDED = ("method", "data", "rounds")
PROGRESS = (
    "SELECT (SELECT COUNT(*) FROM rounds), (SELECT COALESCE(SUM(seconds), 0) FROM rounds), "
    "(SELECT AVG(seconds) FROM (SELECT seconds FROM rounds ORDER BY round DESC LIMIT 10)), "
    "(SELECT round FROM files WHERE path = 'model.safetensors')"
)
FAILED = "SELECT detail FROM events WHERE kind = 'failed' AND round >= (SELECT COUNT(*) FROM rounds) ORDER BY rowid DESC LIMIT 1"


@dataclass(frozen=True)
class HeadlineAt:
    """The metric that a run is ranked by, and the stage and data that it is read from."""

    of: Headline = ACCURACY
    stage: str = "G"
    data: str = "global"

    @property
    def metric(self) -> str:
        return self.of.name

    @property
    def name(self) -> str:
        return f"{self.stage} {self.metric}"

    def shown(self, value: float | None) -> str:
        return self.of.show(value)

    def last(self, query: Query) -> float | None:
        rows = query(
            "SELECT AVG(value) FROM metrics WHERE stage=? AND data=? AND metric=? AND round=(SELECT MAX(round) FROM "
            "metrics WHERE stage=? AND data=? AND metric=?)",
            (self.stage, self.data, self.metric) * 2,
        )
        return None if rows[0][0] is None else float(rows[0][0])


def headline_at(query: Query) -> HeadlineAt:
    """The headline of a run: the global model's, or that of the clients' models where there is no global one."""
    headline = headline_of(query)
    found = set(query("SELECT DISTINCT stage, data FROM metrics WHERE metric=?", (headline.name,)))
    places = (("G", "global"), ("L1", "own"), ("L2", "own"))
    stage, data = next((place for place in places if place in found), places[0])
    return HeadlineAt(headline, stage, data)


@dataclass(frozen=True)
class RunRow:
    """A run as the table shows it."""

    key: str
    path: Path
    state: str
    why: str = ""  # for failed and broken ones, a sentence
    method: str = "—"
    data: str = "—"
    seed: int = 0
    rounds: int = 0
    done: int = 0
    value: float | None = None
    headline: HeadlineAt = field(default_factory=HeadlineAt)
    seconds: float = 0.0
    left: float | None = None
    deployment: bool = False
    options: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def resume(self) -> str:
        """The command that continues it; empty where there is nothing to continue."""
        return f"undrift resume {shlex.quote(str(self.path))}" if self.state in ("stopped", "failed") else ""


@functools.lru_cache(1024)
def table_of(path: Path, changed: int) -> dict[str, Any]:
    """A run.toml whose needed values are of their types. `changed`: when it was written; another time reads it again."""
    table = read_toml(path)
    check(Options, {name: table[name] for name in NEEDED if name in table}, "run.toml")
    return table


def read_run(key: str, path: Path, running: bool) -> RunRow:
    """The row of a run folder, whole or not."""
    try:
        refuse_links(path)
        if not (path / "run.toml").exists():
            return RunRow(key, path, "starting" if running else "broken", "it has no run.toml: it is half-written")
        table = table_of(path / "run.toml", os.stat(path / "run.toml").st_mtime_ns)
        if missing := [name for name in NEEDED if name not in table]:
            return RunRow(key, path, "broken", f"run.toml has no key {missing[0]}")
        deployment = isinstance(table.get("deploy"), dict)
        data = "sites" if deployment else str(table["data"])
        known = RunRow(
            key, path, "starting" if running else "stopped", "", str(table["method"]), data,
            int(table.get("seed") or 0), int(table["rounds"]), deployment=deployment,
            options=table,
        )  # fmt: skip
        if not (path / "run.sqlite").exists():
            return replace(
                known, state=known.state if running else "broken", why="it has no run.sqlite: it is half-written"
            )
        with reading(path) as query:
            return with_progress(known, query, running)
    except (BadRequest, OSError, TypeError, ValueError) as error:
        return RunRow(key, path, "broken", str(error))


def with_progress(row: RunRow, query: Query, running: bool) -> RunRow:
    ((done, seconds, each, model_at),) = query(PROGRESS)
    headline = headline_at(query)
    failed = query(FAILED)
    finished = done >= row.rounds or (model_at is not None and model_at >= done > 0)
    state = "running" if running else "finished" if finished else "failed" if failed else "stopped"
    left = (row.rounds - done) * each if running and each else None
    why = failed[0][0] if state == "failed" else ""
    return replace(
        row, state=state, why=why, done=done, seconds=seconds, left=left, headline=headline, value=headline.last(query)
    )
