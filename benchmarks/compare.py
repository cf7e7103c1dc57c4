"""The speed of a comparison: its `seconds` over the sum of its runs' seconds on one worker, divided by the cores.

    python benchmarks/compare.py [--rounds 200] [--times 3]    # measures, keeps, renders
    python benchmarks/compare.py --render                      # writes the table again from the kept results

Every run is measured before and after the comparison, and the mean is used: the machine may be slower for a while. With other
rounds than 200 nothing is kept.
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

from undrift.engine.spawn import cores
from undrift.papers.results import machine

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "compare.json", ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- comparison, written by benchmarks/compare.py -->", "<!-- end of comparison -->"
ROUNDS = 200
METHODS = ("fedavg", "flood", "fedbss", "fliu", "scaffold@bound")
SETTINGS = ("--data", "digits", "--partition", "dirichlet(0.1)", "--clients", "20", "--evaluate-every", "20", "--json")


def undrift(*arguments: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-c", "from undrift.cli import main; main()"]
        command = [*program, *arguments, *SETTINGS, "--out", f"{folder}/out"]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)


def measured(rounds: int) -> dict[str, Any]:
    """Seconds of every method alone, and of the comparison."""

    def alone() -> list[float]:
        runs = [("run", "--method", method, "--rounds", str(rounds), "--workers", "1") for method in METHODS]
        return [undrift(*run)["seconds"] for run in runs]

    before = alone()
    together = undrift("compare", *METHODS, "--rounds", str(rounds))["seconds"]
    each = [(a + b) / 2 for a, b in zip(before, alone())]
    return {"alone": [round(one, 2) for one in each], "together": round(together, 2), "cores": cores()}


def table(kept: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = [
        "| " + " | ".join((*kept["methods"], "fair share", "together", "ratio")) + " |",
        "|" + "---:|" * (len(kept["methods"]) + 3),
    ]
    for one in kept["times"]:
        fair = sum(one["alone"]) / one["cores"]
        seconds = " | ".join(f"{value:.1f} s" for value in (*one["alone"], fair, one["together"]))
        lines.append(f"| {seconds} | {one['together'] / fair:.3f} |")
    about = f"`{kept['command']}`; {kept['machine']}, {kept['date']}, load at the start {kept['load']}."
    return "\n".join([*lines, "", about, ""])


def render(kept: dict[str, Any]) -> None:
    before, found, rest = PAGE.read_text().partition(BEGIN)
    assert found, f"{PAGE} has no {BEGIN}"
    PAGE.write_text(f"{before}{BEGIN}\n{table(kept)}{END}{rest.partition(END)[2]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--render", action="store_true", help="write the table from the kept results")
    given = parser.parse_args()
    if given.render:
        render(json.loads(RESULTS.read_text()))
        return
    load = f"{os.getloadavg()[0]:.0f}"
    times = [measured(given.rounds) for _ in range(given.times)]
    kept = {"command": "python benchmarks/compare.py", "methods": METHODS, "machine": machine(),
            "date": time.strftime("%Y-%m-%d"), "load": load, "times": times}  # fmt: skip
    print(table(kept))
    if given.rounds == ROUNDS:
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
        render(kept)


if __name__ == "__main__":
    main()
