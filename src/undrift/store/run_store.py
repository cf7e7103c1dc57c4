"""Everything a run stores: the record, the states, the checkpoints, and the lock that keeps a second process out.

A checkpoint is complete or it does not exist: segment and checkpoint file are written and synced first, then one SQLite
transaction names them with their hashes and waits for the disk, and only then old files are deleted. So a power cut loses
at most the rounds since the last checkpoint. A checkpoint is incremental: it holds the vectors and the server's memory each time, but
client states and shelf rows only if their committed version changed. The last two checkpoints are kept, so that a
damaged one can be skipped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import zlib
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from undrift.core import system
from undrift.core.errors import BadRequest, RunFailed
from undrift.store import checksums, trees
from undrift.store.durable import make_folder, sync_folder, write_pieces
from undrift.store.own_files import CHECKPOINT, is_own, refuse_links
from undrift.store.record import Record
from undrift.store.server_state import ServerState, Versions
from undrift.store.states import Place, States

CHECKPOINTS = "SELECT round, path, sha256 FROM files WHERE path LIKE 'checkpoints/0%' ORDER BY round DESC"
COST_FACTOR, PATIENCE = 20, 30.0  # checkpoints take a twentieth of the time; a crash loses at most 30 s


class RunStore:
    """With `folder=None` everything stays in memory. `every` is in rounds; without it the cost decides (`due`).
    `lock=False` is for reading: nothing in the folder is created or changed."""

    def __init__(self, folder: Path | None, budget: int = 10**9, every: int | None = None, lock: bool = True) -> None:
        from_tests = os.environ.get("UNDRIFT_CHECKPOINT_EVERY")
        self.folder, self.every = folder, every or (int(from_tests) if from_tests else None)
        self.lock: int | None = None
        if folder is not None:
            if not folder.is_dir():
                make_folder(folder)
            refuse_links(folder)
            if lock:  # who only reads a run has nothing to wait for
                for name in ("checkpoints", "states"):
                    (folder / name).mkdir(exist_ok=True)
                sync_folder(folder)
            self.lock = locked(folder) if lock else None
        self._whole = lock and folder is not None and not (folder / "run.sqlite").exists()  # written by nobody else
        self.record = Record(None if folder is None else folder / "run.sqlite", read_only=not lock)
        self.record.mark = self.lock
        self.states = States(None if folder is None else folder / "states", budget, read_only=not lock)
        self.lost_states: str | None = None  # why no client's state can be used
        self._kept: list[tuple[int, Versions]] = []  # (round, committed versions) of the checkpoints on disk
        self._index = 0  # `index_sum` of the newest checkpoint's versions
        self._last, self._elsewhere, self._cost = 0.0, 0.0, 0.0
        self._busy: Future[None] | None = None

    # ---- writing ---------------------------------------------------------------------------------------------

    def keep_round(self, kind: str, client: int, server_state: ServerState) -> int | None:
        """The version of a client's state or shelf row that the oldest resumable checkpoint needs."""
        if self.folder is None:
            return server_state.versions.get((kind, client))
        return self._kept[0][1].get((kind, client)) if self._kept else None

    def forget_rows(self, before: ServerState, after: ServerState) -> None:
        """Delete shelf rows that a round replaced, except those a checkpoint needs. (A client's states are deleted
        where its reply arrives. Shelf rows belong to the server, so they are deleted here.)"""
        for (kind, client), version in after.versions.items():
            if kind != "state" and before.versions.get((kind, client)) != version:
                needed = self.keep_round(kind, client, before)
                if needed is not None:
                    self.states.drop_below(kind, client, needed)

    def due(self, server_state: ServerState, elsewhere: float = 0.0) -> bool:
        """Whether to write a checkpoint: after twenty times the cost of the last one, at the latest after 30 s. `elsewhere`:
        seconds so far in which the process worked for other runs. They do not count."""
        if self.folder is None:
            return False
        if not self._kept or self.every is not None:
            return not self._kept or server_state.round % (self.every or 1) == 0
        waited = time.monotonic() - self._last
        return waited - (elsewhere - self._elsewhere) >= COST_FACTOR * self._cost or waited >= PATIENCE

    def last_checkpoint(self, server_state: ServerState) -> None:
        """The rounds have ended, as planned or not: write the committed state and wait until it is on disk."""
        if self.folder is not None and self._kept and self._kept[-1][0] < server_state.round:
            self.checkpoint(server_state, wait=True)
        self.states.writer.finish()

    def checkpoint(self, server_state: ServerState, wait: bool = False, elsewhere: float = 0.0) -> None:
        """Let the writer thread write this state to disk while the next round runs. `elsewhere` as in `due`."""
        wait = wait or self.every is not None
        if self._busy is not None and not self._busy.done() and not wait:
            return
        before = self._kept[-1][1] if self._kept else {}
        self._kept = [
            *[k for k in self._kept if k[0] != server_state.round],
            (server_state.round, server_state.versions),
        ][-2:]
        self._last, self._elsewhere = time.monotonic(), elsewhere
        self._busy = self.states.writer.submit(self._write, server_state, before, self._kept[0][0])
        if wait:
            began = time.monotonic()
            self.states.writer.finish()
            self.states.waited += time.monotonic() - began

    def _write(self, server_state: ServerState, before: Versions, oldest: int) -> None:
        """Write one checkpoint. `before` holds the versions of the last one, `oldest` is the oldest round to keep."""
        assert self.folder is not None
        began = time.monotonic()
        self.states.seal()
        reached("segment synced")
        name = f"checkpoints/{server_state.round:08d}.safetensors"
        changed = {key: version for key, version in server_state.versions.items() if before.get(key) != version}
        old = {key: before[key] for key in changed if key in before}
        self._index += index_sum(changed) - index_sum(old)
        data = trees.pieces(
            {
                "vector": server_state.vector,
                "judged": server_state.evaluated,
                "integers": server_state.integers,
                "memories": server_state.memories,
                "states": self._index,
            }
        )
        sha256 = write_pieces(self.folder / name, data)
        reached("checkpoint written")
        rows = []
        for (kind, client), version in changed.items():
            place = self.states.places[kind, client, version]
            rows.append(
                (server_state.round, kind, client, version, place.path, place.start, place.length, place.sha256)
            )
        db = self.record.db
        with self.record.transaction(durable=True):
            db.execute("DELETE FROM files WHERE round = ? AND path = ?", (server_state.round, name))
            db.execute("INSERT INTO files VALUES (?,?,?)", (server_state.round, name, sha256))
            db.executemany("INSERT INTO states VALUES (?,?,?,?,?,?,?,?)", rows)
            reached("rows inserted")
            db.execute("DELETE FROM files WHERE round < ? AND path LIKE 'checkpoints/0%'", (oldest,))
            checksums.seal(db, "files")
            db.execute(
                "DELETE FROM states WHERE checkpoint < ? AND EXISTS (SELECT 1 FROM states AS newer WHERE "
                "newer.kind = states.kind AND newer.client = states.client AND newer.checkpoint > states.checkpoint "
                "AND newer.checkpoint <= ?)",
                (oldest, oldest),
            )
        reached("checkpoint named")
        self._collect()
        reached("old files collected")
        self._cost = time.monotonic() - began

    def _collect(self) -> None:
        """Delete checkpoint files and segments that the record does not name. Files of other names stay."""
        assert self.folder is not None
        with self.record.lock:
            named = {path for (path,) in self.record.all("SELECT path FROM files")}
            segments = {path for (path,) in self.record.all("SELECT DISTINCT path FROM states")}
        for path in (self.folder / "checkpoints").iterdir():
            if f"checkpoints/{path.name}" not in named and is_own(CHECKPOINT, path.name):
                path.unlink()
        self.states.collect(segments)

    # ---- reading ---------------------------------------------------------------------------------------------

    def newest(self, states: bool = True, before: int | None = None) -> tuple[ServerState, list[str]]:
        """(the newest complete checkpoint, one sentence for everything that is damaged), of those of a round below `before`
        if it is given. With `states=False` the global model is enough: a client's state is checked when it is used."""
        damage: list[str] = []
        for round, path, sha256 in self.record.all(CHECKPOINTS):
            if before is not None and round >= before:
                continue
            try:
                server_state, index = self._read(round, path, sha256)
                lost = self._find_states(server_state, index)
                if states:
                    if lost is not None:
                        raise RunFailed(lost)
                    self._check_states(server_state)
            except (RunFailed, OSError) as error:
                damage.append(f"checkpoint {round} is not whole ({error})")
                continue
            if not states and not damage:
                damage += self._unnamed(round)
            if damage:
                damage[-1] += f"; checkpoint {round} is used instead"
            self.lost_states = lost
            return server_state, damage if lost is None else [*damage, lost]
        raise RunFailed("nothing whole is left to resume from" + (f": {'; '.join(damage)}" if damage else ""))

    def _unnamed(self, newest: int) -> list[str]:
        """A sentence about a checkpoint on disk that is newer than all that the record names."""
        assert self.folder is not None
        names = [path.name for path in (self.folder / "checkpoints").iterdir() if CHECKPOINT.fullmatch(path.name)]
        found = max((int(name.partition(".")[0]) for name in names), default=newest)
        why = "the run was stopped while it was written, or run.sqlite lost its end"
        return [f"checkpoint {found} is not named by run.sqlite ({why})"] if found > newest else []

    def restore(self, before: int | None = None) -> tuple[ServerState, list[str]]:
        """Go back to the newest complete checkpoint (of a round below `before`, if given). Later rows and files that no
        checkpoint names are deleted."""
        server_state, damage = self.newest(before=before)
        with self.record.transaction():
            self.record.db.execute("DELETE FROM files WHERE round > ?", (server_state.round,))
            self.record.db.execute("DELETE FROM states WHERE checkpoint > ?", (server_state.round,))
            checksums.seal(self.record.db, "files")
        self.record.forget_from(server_state.round)  # waits for the disk, so that the record names no deleted file
        self._kept = [*self._older(server_state.round), (server_state.round, server_state.versions)]
        self._index = index_sum(server_state.versions)
        self._collect()
        self._last = time.monotonic()
        return server_state, damage

    def _older(self, round: int) -> list[tuple[int, Versions]]:
        """The checkpoint before `round` that is still on disk: one may have to go back to it, too."""
        query = "SELECT MAX(round) FROM files WHERE round < ? AND path LIKE 'checkpoints/0%'"
        ((older,),) = self.record.all(query, (round,))
        if older is None:
            return []
        query = "SELECT kind, client, version FROM states WHERE checkpoint <= ? ORDER BY checkpoint"
        return [(older, {(kind, client): version for kind, client, version in self.record.all(query, (older,))})]

    def _read(self, round: int, path: str, sha256: str) -> tuple[ServerState, int | None]:
        """Read and check one checkpoint. Returns its state without versions, and the `index_sum` of these."""
        assert self.folder is not None
        if not isinstance(round, int) or path != f"checkpoints/{round:08d}.safetensors":
            raise RunFailed(f"the record names {path!r} as its file")
        data = (self.folder / path).read_bytes()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise RunFailed(f"{path} is damaged")
        try:
            tree = trees.load(data)
            state = ServerState(round, tree["vector"], tree["judged"], tree["integers"], tree["memories"], {})
            return state, tree.get("states")
        except Exception as error:  # its hash is right, so it was not damaged but made by somebody else
            raise RunFailed(f"{path} is not a checkpoint: {error}") from None

    def _find_states(self, server_state: ServerState, index: int | None) -> str | None:
        """Find the committed versions of a checkpoint in the record. Returns a sentence if they are not those that the
        checkpoint was written with. (Checkpoints of older versions of Undrift do not tell.)"""
        places = {}
        query = (
            "SELECT kind, client, version, path, start, length, sha256 FROM states "
            "WHERE checkpoint <= ? ORDER BY checkpoint"
        )
        for kind, client, version, *where in self.record.all(query, (server_state.round,)):
            server_state.versions[kind, client] = version
            places[kind, client] = Place(*where)
        for key, place in places.items():
            self.states.adopt((*key, server_state.versions[key]), place)
        if index is None or index_sum(server_state.versions) == index:
            return None
        return "the states of the clients cannot be found: their index in run.sqlite is damaged"

    def _check_states(self, server_state: ServerState) -> None:
        """Read every state that a checkpoint needs. Raises for the first that is damaged."""
        for (kind, client), version in server_state.versions.items():
            self.states.read(self.states.places[kind, client, version], f"the {kind} of client {client}")

    def damage(self) -> list[str]:
        """One sentence for everything beside the checkpoints that is not as the run wrote it. Called while reading."""
        assert self.folder is not None
        marked = marked_rounds(self.folder)  # before the record is read, which may go on
        sentences = self.record.damage()
        done = self.record.all("SELECT COUNT(*) FROM rounds")[0][0]
        if marked is not None and marked > done:
            sentences.append(f"run.sqlite has {done} of the {marked} rounds that were finished: the last ones are lost")
        for path, sha256 in self.record.all("SELECT path, sha256 FROM files WHERE path = 'model.safetensors'"):
            try:
                whole = hashlib.sha256((self.folder / path).read_bytes()).hexdigest() == sha256
            except OSError:
                whole = False
            if not whole:
                sentences.append(f"{path} is missing or damaged; the model of the last checkpoint is not affected")
        return sentences

    def close(self) -> None:
        self.states.close()
        whole = self.lock is not None and (self._whole or not self.record.damage())
        self.record.close()
        self.record.mark = None
        if whole and self.record.path is not None:
            with contextlib.suppress(OSError):  # a full disk: then every row is checked when the record is read
                checksums.note_file(self.record.path)
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None


def reached(point: str) -> None:
    """A named point between two writes of a commit. Tests end the process here: UNDRIFT_DIE_AT="rows inserted"."""
    if os.environ.get("UNDRIFT_DIE_AT") == point:
        os._exit(77)


def index_sum(versions: Mapping[tuple[str, int], int]) -> int:
    """A checksum of committed versions that does not depend on their order, so that a checkpoint adds its changes. The
    count of versions is in it."""
    return sum(
        (1 << 40) + zlib.crc32(f"{kind} {client} {version}".encode()) for (kind, client), version in versions.items()
    )


def marked_rounds(folder: Path) -> int | None:
    """How many rounds the run had committed, by its lock file. None if that does not tell."""
    try:
        return int((folder / "lock").read_bytes()[:20])
    except (OSError, ValueError):
        return None


def locked(folder: Path) -> int:
    """Take the run's lock until this process ends, however it ends. Returns the file descriptor."""
    file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        system.lock(file)
    except OSError:
        os.close(file)
        raise BadRequest(f"the run in {folder} is in use by another process; wait for it or stop it") from None
    return file
