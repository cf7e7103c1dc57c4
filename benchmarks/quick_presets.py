"""The minutes of the quick presets in two checkouts, in turns: NEW's seconds over OLD's.

    python benchmarks/quick_presets.py OLD NEW [--rounds 20] [--json FILE] [--preset NAME]…

Every preset that OLD has is run at quick scale with one seed, by `undrift paper run` in a process of each checkout's `src`:
first OLD, in the next preset NEW. NEW runs only the rows and columns that OLD has. The time is the whole command, with imports, data,
report and table. `--rounds` shortens every run (the presets have 40 to 100 rounds), so what is paid once weighs more than
in a whole preset, in both checkouts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = """
import json, sys
from undrift.papers import papers
try:
    from undrift.papers.scales import scaled
except ImportError:  # an earlier checkout
    scaled = papers.scaled
found = {}
for name in sys.argv[1:] or papers.names():
    quick = scaled(papers.load(name), "quick")
    found[name] = [[row.name for row in quick.rows], [column.name for column in quick.columns]]
print(json.dumps(found))
"""


def python(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process that imports this checkout, in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        here = os.environ | {"PYTHONPATH": str(checkout.resolve() / "src")}
        return subprocess.run([sys.executable, *arguments], env=here, cwd=folder, capture_output=True, text=True)


def presets(checkout: Path, names: list[str]) -> dict[str, list[list[str]]]:
    done = python(checkout, "-c", NAMES, *names)
    if done.returncode:
        sys.exit(f"the presets of {checkout} cannot be read: {done.stderr.strip()}")
    return json.loads(done.stdout)


def seconds(checkout: Path, preset: str, rounds: int, rows: list[str], columns: list[str]) -> float:
    only = [part for row in rows for part in ("--row", row)] + [part for one in columns for part in ("--column", one)]
    command = ["paper", "run", preset, "--scale", "quick", "--seeds", "1", "--rounds", str(rounds), "--quiet", *only]
    began = time.monotonic()
    done = python(checkout, "-c", "from undrift.cli import main; main()", *command)
    if done.returncode:
        sys.exit(f"{preset} in {checkout}: {done.stderr.strip()}")
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--preset", action="append", default=[])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    old = presets(given.old, given.preset)
    new = presets(given.new, list(old))
    found: list[dict[str, Any]] = []
    for number, (name, (rows, columns)) in enumerate(old.items()):
        rows, columns = ([one for one in had if one in has] for had, has in zip((rows, columns), new[name]))
        if not rows or not columns:
            print(f"{name}: no row or column is in both", flush=True)
            continue
        took: dict[str, float] = {}
        for checkout in (given.old, given.new) if number % 2 == 0 else (given.new, given.old):
            took["old" if checkout is given.old else "new"] = seconds(checkout, name, given.rounds, rows, columns)
        found.append({"preset": name, **{key: round(value, 2) for key, value in took.items()}})
        print(f"{name}: {took['old']:.1f} s, {took['new']:.1f} s, {took['new'] / took['old']:.2f}", flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps({"rounds": given.rounds, "presets": found}, indent=1) + "\n")
    before, after = (sum(one[key] for one in found) for key in ("old", "new"))
    print(f"{len(found)} presets: {before:.0f} s, {after:.0f} s, {after / before:.2f}")


if __name__ == "__main__":
    main()
