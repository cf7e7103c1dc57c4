"""Many generated cases: command lines, changed files, calls of the Python API. `make soak` runs them all.

python tests/fuzz/soak.py --commands 2000 --files 1000 --calls 400 --seed 0
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent))
os.environ.setdefault("UNDRIFT_CORES", "1")  # comparisons run in this process

from tests.fuzz import calls, cases, commands, files  # noqa: E402 - the path comes first


def soak(kind: str, numbers: range, seed: int, home: Path) -> list[tuple[str, cases.Outcome]]:
    """The cases of one kind with these numbers: what was done, and what came out."""
    material = files.Material(home / "material") if kind == "files" else None
    found = []
    for number in numbers:
        draw = random.Random(f"{seed}/{kind}/{number}")
        place = home / "case" / "here"  # so that ../x stays inside
        shutil.rmtree(home / "case", ignore_errors=True)
        place.mkdir(parents=True)
        if kind == "commands":
            what = commands.command_line(draw)
            outcome = cases.command_case(what, place, draw.choice(("utf-8", "utf-8", "ascii", "latin-1")))
        elif kind == "files":
            assert material is not None
            what, outcome = files.file_case(draw, material, place)
        else:
            what, call = calls.call(draw)
            outcome = cases.call_case(call, place)
        found.append((f"{kind} {number}: {shown(what)}", outcome))
    return found


def shown(what: object) -> str:
    text = repr(what)
    return text if len(text) < 300 else f"{text[:200]} … {text[-60:]}"


def summary(kind: str, found: list[tuple[str, cases.Outcome]]) -> str:
    count = collections.Counter(outcome.kind for _, outcome in found)
    slowest = max((outcome.seconds for _, outcome in found), default=0.0)
    parts = ", ".join(f"{count[name]} {name}" for name in ("worked", "refused", "failed"))
    faults = ", ".join(f"{count[name]} {word}" for name, word in
                       (("traceback", "tracebacks"), ("hang", "hangs"), ("sentence", "bad sentences")))  # fmt: skip
    return f"{len(found)} {kind}: {parts}; {faults}; the slowest took {slowest:.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for kind, count in (("commands", 2000), ("files", 1000), ("calls", 400)):
        parser.add_argument(f"--{kind}", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="number of the first case of each kind")
    parser.add_argument("--sentences", action="store_true", help="print every refusal")
    asked = parser.parse_args()
    faults = 0
    with tempfile.TemporaryDirectory() as home:
        os.environ["UNDRIFT_CACHE"] = f"{home}/cache"
        for kind in ("commands", "files", "calls"):
            began = time.monotonic()
            found = soak(kind, range(asked.start, asked.start + getattr(asked, kind)), asked.seed, Path(home))
            for what, outcome in found:
                if outcome.fault:
                    faults += 1
                    print(f"FAULT {outcome.kind} {what}\n{outcome.detail}\n")
                elif asked.sentences:
                    print(f"{outcome.kind} {what}\n    {outcome.detail[:400]}")
            print(f"{summary(kind, found)}; seed {asked.seed}, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
