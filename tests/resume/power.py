"""A run's system calls, recorded with strace and replayed into the folders that a power cut could leave.

The model is as pessimistic as POSIX. An fsync of a file keeps its content, but not its name. An fsync of a folder keeps
the names in it: files that were created, renamed or deleted. Of everything else, the disk may have any part. `LOSSES` are
the extremes. SQLite's `-shm` is left out: it is shared memory, which SQLite makes anew.

python tests/resume/power.py FOLDER PROMISES METHOD EVERY STOP        (what `record` runs under strace)
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

CALLS = "openat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,ftruncate"
SETTINGS = {
    "clients": 4,
    "rounds": 8,
    "epochs": 1,
    "model": "mlp(8)",
    "partition": "dirichlet(0.3)",
    "engine": "inline",
}
FINISHED = 10**6  # promised when the run has ended: the model is in the folder
Image = dict[str, bytes | None]  # path -> content, None for a folder


@dataclass
class File:
    data: bytes = b""
    synced: bytes = b""

    def write(self, data: bytes, start: int) -> None:
        self.data = self.data[:start].ljust(start, b"\0") + data + self.data[start + len(data) :]


@dataclass
class Folder:
    names: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)


def lost(path: str, file: File) -> bytes:
    return file.synced


def zeros(path: str, file: File) -> bytes:
    """The new size reached the disk, the new content did not."""
    return file.synced[: len(file.data)].ljust(len(file.data), b"\0")


def kept(path: str, file: File) -> bytes:
    return file.data


def record_kept(path: str, file: File) -> bytes:
    return file.data if "run.sqlite" in path else file.synced


# (whether names that were not synced are on disk, what a file holds)
LOSSES: dict[str, tuple[bool, Callable[[str, File], bytes]]] = {
    "everything lost": (False, lost),
    "names kept": (True, lost),
    "names and sizes kept": (True, zeros),
    "content kept": (False, kept),
    "record kept": (False, record_kept),
    "names and record kept": (True, record_kept),
    "everything kept": (True, kept),  # a kill without a power cut
}


class Disk:
    """The file system below `root`, which is on disk itself."""

    def __init__(self, root: Path) -> None:
        self.root, self.top = str(root), Folder()
        self.positions: dict[int, int] = {}  # where the next `write` to a file descriptor goes

    def folder_of(self, path: str) -> tuple[Folder, str]:
        folder, *parts = self.top, *path.removeprefix(self.root).strip("/").split("/")
        for part in parts[:-1]:
            below = folder.names[part]
            assert isinstance(below, Folder)
            folder = below
        return folder, parts[-1]

    def at(self, path: str) -> File | Folder | None:
        folder, name = self.folder_of(path)
        return folder.names.get(name) if name else self.top

    def do(self, call: str, arguments: list[bytes], fd: tuple[int, str] | None, flags: str) -> bool:
        """Replay one call that succeeded. Returns whether the disk may be another one now."""
        if call == "openat":
            return self.open(arguments[-1].decode(), fd, flags)
        if call in ("mkdir", "mkdirat", "unlink", "unlinkat", "rename", "renameat", "renameat2"):
            paths = [path.decode() for path in arguments]
            if not paths[0].startswith(self.root):
                return False
            folder, name = self.folder_of(paths[0])
            if call.startswith("mkdir"):
                folder.names[name] = Folder()
                return True
            moved = folder.names.pop(name)
            if call.startswith("rename"):
                folder, name = self.folder_of(paths[1])
                folder.names[name] = moved
            return True
        assert fd is not None
        number, path = fd
        if not path.startswith(self.root) or (found := self.at(path)) is None:
            return False
        if call in ("fsync", "fdatasync"):
            if isinstance(found, File):
                found.synced = found.data
            else:
                found.synced = dict(found.names)
            return True
        assert isinstance(found, File)
        if call == "write":
            start = self.positions[number]
            found.write(arguments[0], start)
            self.positions[number] = start + len(arguments[0])
        elif call == "pwrite64":
            found.write(arguments[0], int(flags.rsplit(",", 1)[1]))
        else:
            size = int(flags.rsplit(",", 1)[1])
            found.data = found.data[:size].ljust(size, b"\0")
        return True

    def open(self, path: str, fd: tuple[int, str] | None, flags: str) -> bool:
        if not path.startswith(self.root) or ("O_WRONLY" not in flags and "O_RDWR" not in flags):
            return False
        folder, name = self.folder_of(path)
        changed = name not in folder.names
        file = folder.names.setdefault(name, File())
        assert isinstance(file, File)
        if "O_TRUNC" in flags and file.data:
            file.data, changed = b"", True
        assert fd is not None
        self.positions[fd[0]] = len(file.data) if "O_APPEND" in flags else 0
        return changed

    def image(self, loss: str) -> Image:
        """What a power cut leaves below `root`."""
        names_kept, content = LOSSES[loss]
        found: Image = {}

        def walk(folder: Folder, path: str) -> None:
            for name, below in (folder.names if names_kept else folder.synced).items():
                if isinstance(below, Folder):
                    found[path + name] = None
                    walk(below, f"{path}{name}/")
                elif not name.endswith("-shm"):
                    found[path + name] = content(path + name, below)

        walk(self.top, "")
        return found


@dataclass(frozen=True)
class Cut:
    """A power cut after so many calls: what is promised by then (a checkpoint's round), and the disk."""

    calls: int
    promised: int
    loss: str
    image: Image

    def write(self, root: Path) -> Path:
        """Write the image below a folder. Returns the run's folder in it."""
        for path, data in self.image.items():
            if data is None:
                (root / path).mkdir(parents=True)
            else:
                (root / path).write_bytes(data)
        return root / "run"

    def key(self) -> str:
        state = hashlib.sha256(str(self.promised).encode())
        for path, data in sorted(self.image.items()):
            state.update(f"{path} {None if data is None else len(data)}\n".encode() + (data or b""))
        return state.hexdigest()


def text(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


def lines(trace: Path) -> Iterator[str]:
    """The calls in the order in which they ended. A call that another thread interrupted is put together again."""
    begun: dict[str, str] = {}
    for line in trace.read_text().splitlines():
        process, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.endswith("<unfinished ...>"):
            begun[process] = rest.removesuffix("<unfinished ...>")
        elif resumed := re.match(r"<\.\.\. \w+ resumed>", rest):
            yield begun.pop(process) + rest[resumed.end() :]
        else:
            yield rest


def cuts(trace: Path, root: Path, promises: Path) -> Iterator[Cut]:
    """A cut after every call that changed the disk, with every loss."""
    disk, promised, calls = Disk(root), -1, 0
    for line in lines(trace):
        parsed = re.match(r"(\w+)\((.*)\)\s+= (\d+)(?:<([^>]*)>)?", line)
        if parsed is None:  # a call that failed, a signal, the end of a thread
            continue
        call, inside, value, opened = parsed.groups()
        arguments = [text(found) for found in re.findall(r'"([^"]*)"', inside)]
        flags = re.sub(r'"[^"]*"|<[^>]*>', "", inside)
        given = re.match(r"(\d+)<([^>]*)>", inside)
        fd = (int(given[1]), text(given[2]).decode()) if given and given[2].startswith("\\x") else None
        if call == "openat":
            fd = (int(value), text(opened).decode()) if opened and opened.startswith("\\x") else None
        elif fd is None and given is not None:
            continue  # a pipe or a socket
        if call == "write" and fd is not None and fd[1] == str(promises):
            promised = int(arguments[0])
        elif not disk.do(call, arguments, fd, flags):
            continue
        calls += 1
        for loss in LOSSES:
            yield Cut(calls, promised, loss, disk.image(loss))


def record(place: Path, method: str, every: int, stop: int, python_path: str) -> tuple[Path, Path, Path]:
    """Run this file under strace: (the trace, the folder that holds the run's folder, the file of promises)."""
    trace, root, promises = place / "trace", place / "disk", place / "promises"
    root.mkdir()
    command = [
        "strace",
        "-f",
        "-y",
        "-xx",
        "-s",
        "100000000",
        "--seccomp-bpf",
        "-o",
        str(trace),
        "-e",
        f"trace={CALLS}",
    ]
    done = subprocess.run(
        [*command, sys.executable, __file__, str(root / "run"), str(promises), method, str(every), str(stop)],
        env={**os.environ, "PYTHONPATH": python_path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return trace, root, promises


def main(folder: str, promises: str, method: str, every: str, stop: str) -> None:
    """A run that is stopped after a round, loses its newest checkpoint, and is resumed. Every checkpoint is promised."""
    import undrift as ud
    from undrift.experiment.callback import RunCallback
    from undrift.store import run_store

    promise_file = os.open(promises, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    writing, write = [0], run_store.RunStore._write

    def promise(round: int) -> None:
        os.write(promise_file, str(round).encode())

    def noted(self, server_state, *more):
        writing[0] = server_state.round
        write(self, server_state, *more)

    class Stop(RunCallback):
        def on_round(self, round, rounds, seconds, accuracy):
            if round == int(stop):
                raise KeyboardInterrupt

    run_store.RunStore._write = noted
    run_store.reached = lambda point: promise(writing[0]) if point == "checkpoint named" else None
    try:
        ud.run(method, out=folder, callback=Stop(), checkpoint_every=int(every), **SETTINGS)
    except KeyboardInterrupt:
        older, newest = sorted(Path(folder, "checkpoints").glob("0*.safetensors"))
        promise(int(older.stem))
        with open(newest, "rb+") as file:
            file.write(b"damaged")
        ud.resume(folder, checkpoint_every=int(every))
    promise(FINISHED)


if __name__ == "__main__":
    main(*sys.argv[1:])
