"""Kill a run with kill -9 at random moments, resume it each time, and compare with one that was left alone.

python tests/resume/kills.py --kills 20        (`make kill-test`; five of each in .ci/run)
"""

from __future__ import annotations

import argparse
import itertools
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

METHODS = ("fedavg", "scaffold", "fliu", "fedmr")
COMMAND = [sys.executable, "-c", "from undrift.cli import main; main()"]


def arguments(method: str, rounds: int, engine: str) -> list[str]:
    return ["run", "--method", method, "--partition", "dirichlet(0.1)", "--rounds", str(rounds), "--engine", engine,
            "--model", "mlp(100, norm=batch, dropout=0.2)", "--evaluate-every", "10", "--quiet", "--json"]  # fmt: skip


def rows(folder: Path) -> list[list[tuple]]:
    db = sqlite3.connect(folder / "run.sqlite")
    queries = ("SELECT round, lr, cohort FROM rounds ORDER BY round",
               "SELECT * FROM metrics ORDER BY round, client, stage, data, metric",
               "SELECT * FROM notes ORDER BY round, client, part, name, value")  # fmt: skip
    found = [db.execute(query).fetchall() for query in queries]
    db.close()
    return found


def checkpoint(folder: Path) -> int:
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


def killed_and_resumed(words: list[str], folder: Path, kills: int, draw: random.Random) -> tuple[str, int, int]:
    """(the final JSON, kills done, workers left behind)."""
    command, done, behind = [*COMMAND, *words, "--out", str(folder)], 0, 0
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
                time.sleep(0.5)
                states = subprocess.run(
                    ["ps", "-o", "stat=", "-g", str(process.pid)], capture_output=True, text=True
                ).stdout
                behind += sum(not state.startswith("Z") for state in states.split())
                command = [*COMMAND, "resume", str(folder), "--quiet", "--json"]
                continue
        out, _ = process.communicate()
        assert process.returncode == 0, process.returncode
        return out, done, behind


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    given = parser.parse_args()
    draw, good = random.Random(time.time()), True
    for number, method in enumerate(given.methods):
        engine = "processes" if number % 2 else "inline"
        words = arguments(method, given.rounds, engine)
        with tempfile.TemporaryDirectory() as place:
            calm = subprocess.run(
                [*COMMAND, *words, "--out", f"{place}/calm"], capture_output=True, text=True, check=True
            )
            out, kills, behind = killed_and_resumed(words, Path(place) / "hit", given.kills, draw)
            same = json.loads(calm.stdout)["model_sha256"] == json.loads(out)["model_sha256"]
            complete = rows(Path(place) / "calm") == rows(Path(place) / "hit")
            db = sqlite3.connect(Path(place) / "hit" / "run.sqlite")
            resumed = [r for (r,) in db.execute("SELECT round FROM events WHERE kind = 'resumed' ORDER BY rowid")]
            db.close()
        went_on = len(resumed) == kills and all(a <= b for a, b in itertools.pairwise(resumed)) and resumed[-1] > 0
        good &= same and complete and went_on and not behind and kills > 0
        print(f"{method} on {engine}: {kills} kills, resumed from rounds {resumed}; same model: {same}; every row once: "
              f"{complete}; workers left behind: {behind}", flush=True)  # fmt: skip
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
