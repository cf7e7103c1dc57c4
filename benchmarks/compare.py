"""The speed of a comparison: its `seconds` over the sum of its runs' seconds on one worker, divided by the cores.

    python benchmarks/compare.py [--rounds 200] [METHOD …]

Every run is measured before and after the comparison, and the mean is used: the machine may be slower for a while.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from typing import Any

from undrift.engine.spawn import cores

METHODS = ("fedavg", "flood", "fedbss", "fliu", "scaffold@bound")
SETTINGS = ("--data", "digits", "--partition", "dirichlet(0.1)", "--clients", "20", "--evaluate-every", "20", "--json")


def undrift(*arguments: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-c", "from undrift.cli import main; main()"]
        command = [*program, *arguments, *SETTINGS, "--out", f"{folder}/out"]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--rounds", default="200")
    given = parser.parse_args()

    def alone() -> list[float]:
        return [
            undrift("run", "--method", method, "--rounds", given.rounds, "--workers", "1")["seconds"]
            for method in given.methods
        ]

    before = alone()
    together = undrift("compare", *given.methods, "--rounds", given.rounds)["seconds"]
    after = alone()
    each = [(a + b) / 2 for a, b in zip(before, after)]
    for method, seconds in zip(given.methods, each):
        print(f"{method:<16} {seconds:6.1f} s alone")
    fair = sum(each) / cores()
    print(
        f"together {together:.1f} s on {cores()} cores; a fair share of the sum is {fair:.1f} s: {together / fair:.3f}"
    )


if __name__ == "__main__":
    main()
