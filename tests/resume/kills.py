"""Kill a run with kill -9 at random moments, resume it each time, and compare with an undisturbed run.

python tests/resume/kills.py --kills 20        (`make kill-test`; five of each in .ci/run)
python tests/resume/kills.py --task sequence   (or regression)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

METHODS = ("fedavg", "scaffold", "fliu", "fedmr")
COMMAND = [sys.executable, "-c", "from undrift.cli import main; main()"]


PROBLEMS = {
    "classification": ["--partition", "dirichlet(0.1)", "--model", "mlp(100, norm=batch, dropout=0.2)"],
    "regression": ["--data", "diabetes", "--partition", "target_skew(0.5)", "--clients", "10", "--model", "mlp(64, dropout=0.2)"],
    "sequence": ["--data", "text.npz", "--task", "sequence", "--partition", "iid", "--clients", "10", "--model", "lstm(width=16)"],
}  # fmt: skip


def arguments(task: str, method: str, rounds: int, engine: str) -> list[str]:
    return ["run", "--method", method, *PROBLEMS[task], "--rounds", str(rounds), "--engine", engine,
            "--evaluate-every", "10", "--quiet", "--json"]  # fmt: skip


def write_text(path: Path) -> None:
    """Sequences of unequal length that count modulo nine."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(3, 9, 200)
    offsets = np.concatenate([[0], lengths.cumsum()])
    x = np.concatenate([(draw.integers(9) + np.arange(length)) % 9 for length in lengths])
    pads = {"x.pad": np.array(-1), "y.pad": np.array(-1)}
    np.savez(path, **{"x": x, "y": (x + 1) % 9, "x.offsets": offsets, "y.offsets": offsets, **pads})


def rows(folder: Path) -> list[list[tuple]]:
    """Everything in the record that must not depend on the kills."""
    db = sqlite3.connect(folder / "run.sqlite")
    queries = ("SELECT round, lr, cohort FROM rounds ORDER BY round",
               "SELECT * FROM metrics ORDER BY round, client, stage, data, metric",
               "SELECT * FROM notes ORDER BY round, client, part, name, value")  # fmt: skip
    found = [db.execute(query).fetchall() for query in queries]
    db.close()
    return found


def checkpoint(folder: Path) -> int:
    """The round of the newest checkpoint; -1 before the first committed round."""
    try:
        db = sqlite3.connect(f"file:{folder / 'run.sqlite'}?mode=ro", uri=True)
        try:
            done = db.execute("SELECT COUNT(*) FROM rounds").fetchone()[0]
            newest = db.execute("SELECT MAX(round) FROM files").fetchone()[0]
        finally:
            db.close()
    except sqlite3.Error:
        return -1
    return newest if done and newest is not None else -1


def kill_and_resume(
    run_arguments: list[str], folder: Path, rounds: int, kills: int, draw: random.Random
) -> tuple[str, list[int], int]:
    """Run, kill and resume until the run is finished: (the final JSON, the round of each kill, workers left behind).

    A process killed after its last round, before it has ended, leaves nothing to resume: that kill has no round.
    """
    command, done, behind = [*COMMAND, *run_arguments, "--out", str(folder)], 0, 0
    killed_at: list[int] = []
    while True:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        if done < kills:
            before = checkpoint(folder)
            while process.poll() is None and checkpoint(folder) <= max(before, 0):
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.4))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                done += 1
                if checkpoint(folder) < rounds:
                    killed_at.append(checkpoint(folder))
                time.sleep(0.5)
                states = subprocess.run(
                    ["ps", "-o", "stat=", "-g", str(process.pid)], capture_output=True, text=True
                ).stdout
                behind += sum(not state.startswith("Z") for state in states.split())
                command = [*COMMAND, "resume", str(folder), "--quiet", "--json"]
                continue
        out, _ = process.communicate()
        assert process.returncode == 0, process.returncode
        return out, killed_at, behind


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--task", choices=PROBLEMS, default="classification")
    given = parser.parse_args()
    draw, good = random.Random(time.time()), True
    for number, method in enumerate(given.methods):
        engine = "processes" if number % 2 else "inline"
        run_arguments = arguments(given.task, method, given.rounds, engine)
        with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
            write_text(Path("text.npz"))
            undisturbed = subprocess.run(
                [*COMMAND, *run_arguments, "--out", f"{place}/undisturbed"], capture_output=True, text=True, check=True
            )
            killed = Path(place) / "killed"
            out, killed_at, behind = kill_and_resume(run_arguments, killed, given.rounds, given.kills, draw)
            same = json.loads(undisturbed.stdout)["model_sha256"] == json.loads(out)["model_sha256"]
            complete = rows(Path(place) / "undisturbed") == rows(killed)
            db = sqlite3.connect(killed / "run.sqlite")
            resumed = [r for (r,) in db.execute("SELECT round FROM events WHERE kind = 'resumed' ORDER BY rowid")]
            db.close()
        resumed_each = resumed == killed_at and any(resumed)
        good &= same and complete and resumed_each and not behind
        print(f"{given.task}, {method} on {engine}: killed at rounds {killed_at}, resumed from {resumed}; same model: {same}; "
              f"every row once: {complete}; workers left behind: {behind}", flush=True)  # fmt: skip
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
