"""The minutes of the quick presets in two checkouts, in turns: NEW's seconds over OLD's.

    python benchmarks/quick_presets.py OLD NEW [--rounds N] [--preset NAME]…    # measures, keeps, renders
    python benchmarks/quick_presets.py --more NEW            # adds the presets that are not kept yet, of NEW alone
    python benchmarks/quick_presets.py --render              # writes the table again from the kept results

Every preset that OLD has is run at quick scale with its own seeds, by `undrift paper run` in a process of each checkout's
`src`: first OLD, in the next preset NEW. NEW runs only the rows and columns that OLD has. The time is the whole command, with
imports, data, report and table. `--rounds` shortens every run (the presets have 30 to 100 rounds), so what is paid once
weighs more than in a whole preset, in both checkouts. With `--rounds` or `--preset` nothing is kept. `undrift paper list` shows
the minutes that are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undrift.papers.results import machine

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "quick_presets.json", ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- quick presets, written by benchmarks/quick_presets.py -->", "<!-- end of quick presets -->"

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


OTHERS = """
import json
from undrift.papers import papers
from undrift.papers.scales import scaled
found = {}
for preset in map(papers.load, papers.names()):
    if preset.trains and not preset.runs and preset.quick:
        quick = scaled(preset, "quick")
        found[preset.name] = len(quick.rows) * len(quick.columns)
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


def seconds(
    checkout: Path, preset: str, rounds: int | None, rows: Sequence[str] = (), columns: Sequence[str] = ()
) -> float:
    """Of the whole command. Without rows and columns all that the preset has."""
    only = [part for row in rows for part in ("--row", row)] + [part for one in columns for part in ("--column", one)]
    shorter = [] if rounds is None else ["--rounds", str(rounds)]
    command = ["paper", "run", preset, "--scale", "quick", "--quiet", *shorter, *only]
    began = time.monotonic()
    done = python(checkout, "-c", "from undrift.cli import main; main()", *command)
    if done.returncode:
        sys.exit(f"{preset} in {checkout}: {done.stderr.strip()}")
    return time.monotonic() - began


def revision(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def table(kept: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["| preset | before, s | after, s | after / before |", "|---|---:|---:|---:|"]
    rows = sorted(kept["presets"], key=lambda one: one["new"] / one["old"])
    before, after = (sum(one[key] for one in rows) for key in ("old", "new"))
    for one in [*rows, {"preset": f"**all {len(rows)}**", "old": before, "new": after}]:
        lines.append(f"| {one['preset']} | {one['old']:.1f} | {one['new']:.1f} | {one['new'] / one['old']:.2f} |")
    about = f"{kept['machine']}, {kept['date']}, load at the start {kept['load']}"
    return "\n".join(
        [*lines, "", f"`{kept['command']}`, before: {kept['old']}, after: {kept['new']}; {about}; each once.", ""]
    )


def render(kept: dict[str, Any]) -> None:
    before, found, rest = PAGE.read_text().partition(BEGIN)
    assert found, f"{PAGE} has no {BEGIN}"
    PAGE.write_text(f"{before}{BEGIN}\n{table(kept)}{END}{rest.partition(END)[2]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, nargs="?")
    parser.add_argument("new", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--preset", action="append", default=[])
    parser.add_argument("--more", type=Path, metavar="NEW", help="add the presets that are not kept yet, of NEW alone")
    parser.add_argument("--render", action="store_true", help="write the table from the kept results")
    given = parser.parse_args()
    if given.more:
        add_more(given.more)
        return
    if given.render:
        render(json.loads(RESULTS.read_text()))
        return
    if given.old is None or given.new is None:
        parser.error("give two checkouts: OLD NEW")
    kept = measured(given.old, given.new, given.rounds, given.preset)
    if not given.preset and given.rounds is None:
        kept["more"] = json.loads(RESULTS.read_text())["more"]  # with the checkout that each was measured in
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
        render(kept)


def measured(before: Path, after: Path, rounds: int | None, only: list[str]) -> dict[str, Any]:
    """Both checkouts, preset by preset, the first one by turns."""
    load = f"{os.getloadavg()[0]:.0f}"
    old = presets(before, only)
    new = presets(after, list(old))
    found: list[dict[str, Any]] = []
    for number, (name, (rows, columns)) in enumerate(old.items()):
        rows, columns = ([one for one in had if one in has] for had, has in zip((rows, columns), new[name]))
        if not rows or not columns:
            print(f"{name}: no row or column is in both", flush=True)
            continue
        took: dict[str, float] = {}
        turns = [("old", before), ("new", after)]
        for key, checkout in turns if number % 2 == 0 else reversed(turns):
            took[key] = round(seconds(checkout, name, rounds, rows, columns), 2)
        cells = len(rows) * len(columns)
        found.append({"preset": name, "cells": cells, "old": took["old"], "new": took["new"]})
        print(f"{name}: {took['old']:.1f} s, {took['new']:.1f} s, {took['new'] / took['old']:.2f}", flush=True)
    return {
        "command": "python benchmarks/quick_presets.py OLD NEW",
        "old": revision(before), "new": revision(after), "machine": machine(), "date": time.strftime("%Y-%m-%d"),
        "load": load, "presets": found,
    }  # fmt: skip


def add_more(checkout: Path) -> None:
    """Measure the presets that are not kept with all their cells, in this checkout alone. Kept one by one: it can be stopped."""
    kept = json.loads(RESULTS.read_text())
    done = python(checkout, "-c", OTHERS)
    if done.returncode:
        sys.exit(f"the presets of {checkout} cannot be read: {done.stderr.strip()}")
    for name, cells in json.loads(done.stdout).items():
        if not any((one["preset"], one["cells"]) == (name, cells) for one in (*kept["presets"], *kept["more"])):
            took = round(seconds(checkout, name, None), 2)
            kept["more"].append({"preset": name, "cells": cells, "new": took, "checkout": revision(checkout)})
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
            print(f"{name}: {took:.1f} s", flush=True)


if __name__ == "__main__":
    main()
