"""A run while it goes on: the log, the stream for alerts, and who is awaited.

`metrics.jsonl` in the server's run folder has one JSON object per line, each with `at` (seconds since 1970) and `kind`:

    start      session, sites, round (the first one), rounds (planned)
    awaiting   round (null in the handshake), sites that the server waits for from now on, until (at the latest)
    reply      round, site, seconds, failure (null if there is none): the site is no longer awaited
    round      round, done, rounds, seconds, accuracy, headline, replied, left_out: after every round
    event      round, event (its kind in the record), detail
    end        state (finished or failed), done, detail

Rounds are numbered from 0, as in the record. The evaluation after the last one is awaited as round `rounds`. The server
holds a lock on the file while it runs, so that a reader distinguishes a run that waits from one that has died. With
`prometheus` given, the latest values are also written as a Prometheus text file, replaced as a whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from undrift.core.errors import BadRequest
from undrift.core.headline import ACCURACY, Headline
from undrift.experiment.callback import RunCallback

if TYPE_CHECKING:
    from undrift.store.run_store import RunStore

FILE = "metrics.jsonl"
PART = "deploy.flower"  # the part name of the engine's notes
Log = Callable[[str], None]


@dataclass
class Monitor:
    """Writes the stream. Without a folder it does nothing, as in tests of single parts."""

    folder: Path | None = None
    sites: Sequence[str] = ()
    rounds: int = 0
    prometheus: Path | None = None
    awaited: list[str] = field(default_factory=list)
    round: int | None = None  # that of the awaited sites; None in the handshake
    done: int = 0  # rounds
    answered: dict[str, int] = field(default_factory=dict)  # replies without a failure, by site
    failed: dict[str, int] = field(default_factory=dict)
    replied_at: dict[str, float] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)  # of the last round
    opened: bool = False
    _file: TextIO | None = None

    @contextlib.contextmanager
    def session(self) -> Iterator[Monitor]:
        """Write how the session ends, if it was opened."""
        try:
            yield self
        except BaseException as error:
            self.close(str(error) or type(error).__name__)
            raise
        self.close(None)

    def open(self, session: int, round: int) -> None:
        """Start a session, when no other process has the run: take the lock and write the first line."""
        if self.folder is not None:
            path = self.folder / FILE
            torn = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")  # by a kill in the middle of a line
            self._file = open(path, "a", encoding="utf-8", opener=private)  # noqa: SIM115 (open until the run ends)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._file.write("\n" if torn else "")
        self.opened, self.done = True, round
        self.write("start", session=session, sites=list(self.sites), round=round, rounds=self.rounds)

    def awaiting(self, round: int | None, sites: Sequence[str], seconds: float) -> None:
        if list(sites) == self.awaited and round == self.round:
            return
        self.round = round
        self.awaited = list(sites)
        self.write("awaiting", round=round, sites=self.awaited, until=round_to_ms(time.time() + seconds))

    def reply(self, round: int, site: str, seconds: float, failure: str | None) -> None:
        self.awaited = [name for name in self.awaited if name != site]
        counted = self.answered if failure is None else self.failed
        counted[site] = counted.get(site, 0) + 1
        if failure is None:
            self.replied_at[site] = time.time()
        self.write("reply", round=round, site=site, seconds=round_to_ms(seconds), failure=failure)

    def round_done(
        self,
        round: int,
        seconds: float,
        headline: float | None,
        replied: list[str],
        left_out: dict[str, str],
        name: str = "accuracy",
    ) -> None:
        self.done, self.values = round + 1, {"round_seconds": seconds, "round_timestamp_seconds": time.time()}
        if headline is not None:
            self.values |= {"headline": headline} | ({"accuracy": headline} if name == "accuracy" else {})
        self.write(
            "round", round=round, done=self.done, rounds=self.rounds, seconds=round_to_ms(seconds),
            accuracy=headline if name == "accuracy" else None, headline=headline, replied=replied, left_out=left_out,
        )  # fmt: skip

    def event(self, round: int, kind: str, detail: str) -> None:
        self.write("event", round=round, event=kind, detail=detail)

    def close(self, failure: str | None) -> None:
        """The session has ended; `failure` says why, if it was not the last round."""
        if not self.opened:
            return
        self.awaited, self.opened = [], False
        state = "finished" if failure is None else "failed"
        self.write("end", state=state, done=self.done, detail=failure)
        if self._file is not None:
            self._file.close()  # and with it the lock
            self._file = None

    def write(self, kind: str, **values: Any) -> None:
        if self._file is not None:
            self._file.write(json.dumps({"at": round_to_ms(time.time()), "kind": kind, **values}) + "\n")
            self._file.flush()
        if self.prometheus is not None and (self.opened or kind == "end"):
            running = 0 if kind == "end" else 1
            part = self.prometheus.with_name(self.prometheus.name + ".part")
            part.write_text(prometheus_text(self, running))
            os.replace(part, self.prometheus)


def private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def round_to_ms(seconds: float) -> float:
    return round(seconds, 3)


def prometheus_file(path: str) -> Path | None:
    """The file of `-c 'prometheus="…"'`; its folder must exist."""
    if not path:
        return None
    file = Path(path).expanduser()
    if not file.parent.is_dir() or file.is_dir():
        raise BadRequest(f"prometheus must be a file in a folder that exists, not {path}")
    return file


def prometheus_text(monitor: Monitor, running: int) -> str:
    """The latest values in Prometheus' text format."""
    lines: list[str] = []

    def metric(name: str, kind: str, help: str, samples: Sequence[tuple[str, float]]) -> None:
        if samples:
            lines.extend([f"# HELP undrift_{name} {help}", f"# TYPE undrift_{name} {kind}"])
            lines.extend(f"undrift_{name}{label} {value:.17g}" for label, value in samples)

    def by_site(values: Callable[[str], float | None]) -> list[tuple[str, float]]:
        found = [(f'{{site="{site}"}}', values(site)) for site in monitor.sites]
        return [(label, value) for label, value in found if value is not None]

    metric("running", "gauge", "1 while the server runs.", [("", running)])
    metric("rounds_done", "gauge", "Rounds that are recorded.", [("", monitor.done)])
    metric("rounds_planned", "gauge", "Rounds of the whole run.", [("", monitor.rounds)])
    for name, help in (
        ("round_seconds", "Duration of the last round."),
        ("round_timestamp_seconds", "When the last round ended."),
        ("accuracy", "Accuracy of the global model on the server's test set."),
        ("headline", "Headline metric of the global model on the server's test set."),
    ):
        metric(name, "gauge", help, [("", monitor.values[name])] if name in monitor.values else [])
    awaited = by_site(lambda site: float(site in monitor.awaited))
    metric("site_awaited", "gauge", "1 while the server waits for the site.", awaited)
    replies = by_site(lambda site: monitor.answered.get(site, 0))
    metric("site_replies_total", "counter", "Replies since the server was started.", replies)
    failures = by_site(lambda site: monitor.failed.get(site, 0))
    metric("site_failures_total", "counter", "Orders without a usable reply since the start.", failures)
    metric("site_reply_timestamp_seconds", "gauge", "When the site last replied.", by_site(monitor.replied_at.get))
    return "\n".join(lines) + "\n"


# ---- reading ---------------------------------------------------------------------------------------------------------


def is_running(folder: Path) -> bool:
    """Whether a server works on this run now: it holds the lock on the stream."""
    try:
        with open(folder / FILE) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def awaited_now(folder: Path) -> dict[str, Any] | None:
    """The round, the awaited sites and the time until which the server waits; None if it does not run."""
    if not is_running(folder):
        return None
    state: dict[str, Any] = {"round": None, "sites": [], "since": None, "until": None}
    for line in (folder / FILE).read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):  # a line may be half-written, or torn by a crash
            entry = json.loads(line)
            if entry["kind"] == "awaiting":
                state = {**{key: entry[key] for key in ("round", "sites", "until")}, "since": entry["at"]}
            elif entry["kind"] == "reply":
                state["sites"] = [site for site in state["sites"] if site != entry["site"]]
            elif entry["kind"] in ("start", "end"):
                state["sites"] = []
    return state


# ---- during the run --------------------------------------------------------------------------------------------------


@dataclass
class Progress(RunCallback):
    """After every round: a line in the log and one in the stream, and the round's events in both."""

    log: Log
    store: RunStore
    monitor: Monitor
    headline: Headline = ACCURACY
    last_event: int = 0  # row of the last event that was logged

    def on_round(self, round: int, rounds: int, seconds: float, headline: float | None) -> None:
        shown = "" if headline is None else f", {self.headline.name} {headline:.4f}"
        self.log(f"round {round}: {seconds:.1f} s{shown} ({round + 1} of {rounds} done)")
        self.events()
        (cohort,) = self.store.record.all("SELECT cohort FROM rounds WHERE round = ?", (round,))[0]
        query = "SELECT client, kind FROM events WHERE round = ? AND client IS NOT NULL"
        kinds = dict(self.store.record.all(query, (round,)))
        names = self.monitor.sites
        replied = [names[client] for client in json.loads(cohort) if client not in kinds]
        left_out = {names[client]: kind for client, kind in kinds.items()}
        self.monitor.round_done(round, seconds, headline, replied, left_out, self.headline.name)

    def events(self) -> None:
        query = "SELECT rowid, round, kind, detail FROM events WHERE rowid > ? ORDER BY rowid"
        for row, round, kind, detail in self.store.record.all(query, (self.last_event,)):
            self.last_event = row
            self.log(f"  {kind}: {detail}")
            self.monitor.event(round, kind, detail)
