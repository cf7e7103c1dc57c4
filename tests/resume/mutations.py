"""Seeded damage to run folders, and what the commands make of it.

    python tests/resume/mutations.py [--count 1000] [--seed 0]

A run folder is copied, one thing in it is damaged, and it is loaded, shown, resumed, and reported or exported. Each must end in one of
three ways: the same results as before, the damage said (and an older checkpoint used where one is), or a refusal in one
sentence. A traceback, or other results without a word, is a failure. Folders of a finished run, of one that was killed
(its log is still beside the record), and of one killed after its first checkpoint are damaged in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from undrift.cli import command
from undrift.core.errors import BadRequest, RunFailed
from undrift.experiment.options import from_keywords
from undrift.experiment.resume import open_run, resume
from undrift.experiment.setup import build_federation

SETTINGS = {
    "method": "scaffold+fliu",
    "clients": 4,
    "rounds": 6,
    "epochs": 1,
    "model": "mlp(8)",
    "partition": "dirichlet(0.3)",
    "engine": "inline",
    "evaluate_every": 2,
}
PAGE = 4096
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
SAME, SAID, REFUSED = "loaded the same", "loaded, damage said", "refused in a sentence"
FAILURES = ("traceback", "silently different")


# ---- the folders ---------------------------------------------------------------------------------------------------

CHILD = """
import os, signal, sys
from undrift.experiment.callback import RunCallback
from undrift.experiment.runner import run
settings = eval(sys.argv[2])
last = int(sys.argv[3])

class Kill(RunCallback):
    def on_round(self, round, rounds, seconds, accuracy):
        if round == last:
            os.kill(os.getpid(), signal.SIGKILL)

run(settings.pop("method"), out=sys.argv[1], callback=Kill(), checkpoint_every=2, **settings)
"""


def make_folders(place: Path) -> list[Path]:
    """The undamaged folders: finished, killed after four rounds and after the first checkpoint's."""
    made = []
    for name, last in (("finished", -1), ("killed", 4), ("young", 2)):
        done = subprocess.run([sys.executable, "-c", CHILD, str(place / name), repr(SETTINGS), str(last)])
        assert done.returncode == (0 if last < 0 else -signal.SIGKILL), done.returncode
        (place / name / "run.sqlite-shm").unlink(missing_ok=True)  # shared memory: a copy of it means nothing
        made.append(place / name)
    return made


# ---- the damage ----------------------------------------------------------------------------------------------------


def flip(file: Path, folder: Path, draw: random.Random) -> str:
    data = bytearray(file.read_bytes())
    bit = draw.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(bytes(data))
    return f"bit {bit % 8} of byte {bit // 8} flipped"


def truncate(file: Path, folder: Path, draw: random.Random) -> str:
    size = draw.randrange(file.stat().st_size)
    os.truncate(file, size)
    return f"cut to {size} bytes"


def delete(file: Path, folder: Path, draw: random.Random) -> str:
    file.unlink()
    return "deleted"


def zero(file: Path, folder: Path, draw: random.Random) -> str:
    data = bytearray(file.read_bytes())
    start = PAGE * draw.randrange(-(-len(data) // PAGE))
    data[start : start + PAGE] = bytes(len(data[start : start + PAGE]))
    file.write_bytes(bytes(data))
    return f"page at {start} zeroed"


def swap(file: Path, folder: Path, draw: random.Random) -> str:
    other = draw.choice([path for path in files_of(folder) if path != file])
    here, there = file.read_bytes(), other.read_bytes()
    file.write_bytes(there)
    other.write_bytes(here)
    return f"swapped with {other.relative_to(folder)}"


def rename(file: Path, folder: Path, draw: random.Random) -> str:
    name = draw.choice([f"{file.name}.bak", f"0{file.name}", f"{int(time.time())}"])
    file.rename(file.with_name(name))
    return f"renamed to {name}"


def overwrite(file: Path, folder: Path, draw: random.Random) -> str:
    """A few bytes anywhere become others: a digit, a letter, anything."""
    data = bytearray(file.read_bytes())
    start = draw.randrange(len(data))
    for place in range(start, min(len(data), start + draw.choice([1, 1, 4, 16]))):
        data[place] = draw.choice([draw.randrange(256), draw.choice(b"0123456789abcxyz")])
    file.write_bytes(bytes(data))
    return f"bytes from {start} on overwritten"


KINDS = (flip, flip, overwrite, truncate, delete, zero, swap, rename)


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def damaged(folder: Path, draw: random.Random) -> str:
    """Damage one thing in a folder. Returns it in words. The record and its log are damaged as often as all others."""
    files = files_of(folder)
    records = [file for file in files if file.name.startswith("run.sqlite")]
    file = draw.choice(records if draw.random() < 0.4 else files)
    kind = draw.choice(KINDS)
    return f"{file.relative_to(folder)}: {kind(file, folder, draw)}"


# ---- what the commands make of it ----------------------------------------------------------------------------------


def cli(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command(list(words))
    return code, out.getvalue(), err.getvalue()


class Checker:
    """Compares damaged folders with the undamaged one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.federation = build_federation(from_keywords(SETTINGS))
        with copied(folder) as copy:
            self.expected = {name: look(copy)[1] for name, look in self.looks.items()}

    @property
    def looks(self) -> dict[str, Callable[[Path], tuple[bool, Any]]]:
        """Ways to use a folder. Each returns (whether damage was said, what it gave)."""
        return {
            "load": self.load, "show": self.show, "report": self.report, "export": self.export, "resume": self.resume,
        }  # fmt: skip

    def load(self, folder: Path) -> tuple[bool, Any]:
        """The model, the numbers, and what every client holds."""
        result = open_run(folder, federation=self.federation)
        summary = {key: value for key, value in result.summary.items() if key not in ("run", "damage")}
        found = [json.dumps([result.server_state.round, summary], sort_keys=True)]
        said = bool(result.damage)
        for client in range(SETTINGS["clients"]):
            try:
                found.append(str([(weight, vector.tolist()) for weight, vector in result.held(client)]))
            except RunFailed:  # the global model is there, this client's state is not
                said = True
        result._store.close()
        return said, found

    def show(self, folder: Path) -> tuple[bool, Any]:
        return self.told(folder, "show", str(folder))

    def report(self, folder: Path) -> tuple[bool, Any]:
        page = folder.parent / "page.html"
        said, out = self.told(folder, "report", str(folder), "--out", str(page))
        return said, out + str(len(page.read_text().split("<body>")[1])) if not said else ""

    def export(self, folder: Path) -> tuple[bool, Any]:
        tables = folder.parent / "tables"
        said, out = self.told(folder, "export", str(folder), "--out", str(tables))
        return said, out + "".join(path.read_text() for path in sorted(tables.iterdir()))

    def told(self, folder: Path, *words: str) -> tuple[bool, Any]:
        code, out, err = cli(*words)
        if code:
            raise RunFailed(err)
        return "note:" in err, out.replace(str(folder.parent), "")

    def resume(self, folder: Path) -> tuple[bool, Any]:
        result = resume(folder, federation=self.federation)
        result._store.close()
        keep = ("accuracy", "model_sha256", "rounds", "stages")
        return bool(result.damage), json.dumps({key: result.summary[key] for key in keep})

    def outcome(self, name: str, folder: Path) -> tuple[str, str]:
        """(how one use of a folder ends, a detail)."""
        try:
            said, found = self.looks[name](folder)
        except (BadRequest, RunFailed) as error:
            text = str(error).strip()
            return (REFUSED, text) if text and "Traceback" not in text else ("traceback", text)
        except Exception as error:
            return "traceback", f"{type(error).__name__}: {error}"
        if found == self.expected[name]:
            return SAME, ""
        return (SAID, "") if said else ("silently different", "")


@contextlib.contextmanager
def copied(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        yield Path(shutil.copytree(folder, Path(place) / "run"))


def soak(count: int, seed: int, workers: int = 1) -> tuple[dict[str, Counter[str]], list[str]]:
    """Damage folders `count` times. Returns how often each use ended in which way, and every failure in words."""
    counts: dict[str, Counter[str]] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        folders = make_folders(Path(place))
        work = [(folders, range(first, count, workers), seed) for first in range(workers)]
        if workers == 1:
            found = [some_mutations(*work[0])]
        else:
            with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
                found = list(pool.map(some_mutations, *zip(*work)))
    for some, more in found:
        failures += more
        for name, counted in some.items():
            counts.setdefault(name, Counter()).update(counted)
    return counts, failures


def some_mutations(folders: list[Path], numbers: Sequence[int], seed: int) -> tuple[dict[str, Counter[str]], list[str]]:
    """The mutations of these numbers. A number and the seed say what is damaged, whoever does it."""
    torch.set_num_threads(1)
    checkers = [Checker(folder) for folder in folders]
    counts: dict[str, Counter[str]] = {}
    failures: list[str] = []
    for number in numbers:
        checker = checkers[number % len(checkers)]
        with copied(checker.folder) as broken:
            what = damaged(broken, random.Random(f"{seed} {number}"))
            for name in ("load", "show", "resume", ("report", "export")[number // len(checkers) % 2]):
                with copied(broken) as folder:  # one use may not change what the next finds
                    how, detail = checker.outcome(name, folder)
                counts.setdefault(name, Counter())[how] += 1
                if how in FAILURES:
                    failures.append(f"{number}: {checker.folder.name}: {what}: {name}: {how} {detail}".strip())
                    print(failures[-1], flush=True)
        if number and number % 50 < 2:
            print(f"mutation {number}: {json.dumps(counts)}", file=sys.stderr, flush=True)
    return counts, failures


def table(counts: dict[str, Counter[str]]) -> str:
    heads = (SAME, SAID, REFUSED, *FAILURES)
    rows = [["", *heads], *[[name, *(str(found[head]) for head in heads)] for name, found in counts.items()]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began = time.monotonic()
    counts, failures = soak(given.count, given.seed, os.cpu_count() or 1)
    print(f"python tests/resume/mutations.py --count {given.count} --seed {given.seed}")
    print(
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores, {time.monotonic() - began:.0f} s"
    )
    print(f"{given.count} mutations of run folders, finished and half-finished:\n{table(counts)}")
    print(f"{len(failures)} failures")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
