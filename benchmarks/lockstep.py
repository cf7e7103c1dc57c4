"""What lock-step changes: rounds beside the bare loop, and whole commands of two checkouts in turns.

    python benchmarks/lockstep.py OLD NEW [--pairs 6] [--seconds 30]    # measures, keeps, renders
    python benchmarks/lockstep.py --bench NEW                           # measures the first table again
    python benchmarks/lockstep.py --render                              # writes the tables again from the kept results

1. `undrift bench a b c d` in NEW: its rounds beside the bare loop.
2. `benchmarks/before_after.py OLD NEW --works a,b`: networks that are too large for a stack must not become slower.
3. `undrift demo` and a comparison of eight methods over ten seeds, in a process of each checkout: first OLD, then NEW, in the
   next pair the other way round. "Training" is what the command itself prints as its seconds, "command" is all of it, with
   imports, data and report.

All measurements of the first table are kept and shown: from hour to hour its ratios differ by more than their spread.
The interval of a median of paired ratios is that of before_after.py. Needs UNDRIFT_DATA with Fashion-MNIST and a quiet machine:
the load at the start is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # its neighbours, wherever it is imported from
import before_after  # noqa: E402
import quick_presets  # noqa: E402

from undrift.papers.results import machine  # noqa: E402

RESULTS, PAGE = HERE / "lockstep.json", HERE.parent / "docs" / "benchmarks.md"
MARKS = {
    "bench": ("<!-- bench, written by benchmarks/lockstep.py -->", "<!-- end of bench -->"),
    "commands": ("<!-- commands, written by benchmarks/lockstep.py -->", "<!-- end of commands -->"),
}
METHODS = ("fedavg", "fedprox", "scaffold", "feddyn", "flood", "fedbss", "fednolowe", "bound")
COMMANDS = {
    "demo": ["demo"],
    "8 methods, 10 seeds": [
        "compare", *METHODS, "--data", "digits", "--partition", "dirichlet(0.1)", "--clients", "20", "--cohort", "0.5",
        "--rounds", "30", "--seeds", "10",
    ],
}  # fmt: skip


def undrift(checkout: Path, *arguments: str) -> Any:
    """What a command of this checkout prints with --json."""
    done = quick_presets.python(checkout, "-c", "from undrift.cli import main; main()", *arguments, "--json")
    if done.returncode:
        sys.exit(f"{arguments[0]} in {checkout}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def timed(checkout: Path, arguments: Sequence[str]) -> dict[str, float]:
    began = time.monotonic()
    found = undrift(checkout, *arguments, "--quiet")
    return {"training": round(found["seconds"], 3), "command": round(time.monotonic() - began, 3)}


def in_turns(old: Path, new: Path, name: str, pairs: int) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
    for pair in range(pairs):
        turns = [("old", old), ("new", new)]
        for key, checkout in turns if pair % 2 == 0 else reversed(turns):
            found[key].append(timed(checkout, COMMANDS[name]))
        before, after = (found[key][-1]["command"] for key in ("old", "new"))
        print(
            f"{name}, pair {pair + 1}: {before:.1f} s, {after:.1f} s, {after / before:.2f}", file=sys.stderr, flush=True
        )
    return found


def larger_networks(old: Path, new: Path) -> list[dict[str, Any]]:
    """What before_after.py says of (a) and (b), without the seconds of every pair."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        command = [sys.executable, str(HERE / "before_after.py"), str(old), str(new), "--works", "a,b"]
        subprocess.run(
            [*command, "--json", str(file)], stdout=subprocess.DEVNULL, check=False
        )  # 1: slower, kept all the same
        works: list[dict[str, Any]] = json.loads(file.read_text())["works"]
    return [{key: value for key, value in work.items() if key != "seconds"} for work in works]


def stamped(new: Path) -> dict[str, Any]:
    """On what, when, beside which other work."""
    load, now = f"{os.getloadavg()[0]:.0f}", time.gmtime()
    about = {"new": quick_presets.revision(new), "machine": machine(), "load": load}
    return about | {"date": time.strftime("%Y-%m-%d", now), "time": time.strftime("%H:%M", now)}


def rounds(new: Path, seconds: float) -> dict[str, Any]:
    """What `undrift bench` prints."""
    command = ("bench", "a", "b", "c", "d", "--seconds", f"{seconds:g}")
    return {"command": f"undrift {' '.join(command)}", **stamped(new), **undrift(new, *command)}


def measured(old: Path, new: Path, pairs: int, seconds: float) -> dict[str, Any]:
    about = {"command": "python benchmarks/lockstep.py OLD NEW", "old": quick_presets.revision(old), **stamped(new)}
    bench = rounds(new, seconds)
    commands = {name: in_turns(old, new, name, pairs) for name in COMMANDS}
    found = {**about, "bench": bench, "commands": commands, "before_after": larger_networks(old, new)}
    return found | {"earlier": measurements(json.loads(RESULTS.read_text()))}


def measurements(kept: dict[str, Any]) -> list[dict[str, Any]]:
    """All of the first table, newest first."""
    return [kept["bench"], *kept.get("earlier", [])]


# ---- rendering -------------------------------------------------------------------------------------------------------


def about(kept: dict[str, Any]) -> str:
    return f"`{kept['command']}`; {kept['machine']}, {kept['date']}, load at the start {kept['load']}."


def bench_table(kept: dict[str, Any]) -> str:
    lines = [
        "| workload | bare s | ours s | ratio | spread | with evaluation | pairs |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for work in kept["bench"]["works"]:
        numbers = [work[key] for key in ("bare", "seconds", "ratio", "spread", "ratio_evaluated")]
        lines.append(f"| {work['name']} | {' | '.join(f'{number:.3f}' for number in numbers)} | {work['pairs']} |")
    lines += ["", f"Data: {kept['bench']['data']}; revision {kept['bench']['new']}. {about(kept['bench'])}", ""]
    if kept.get("earlier"):
        lines += ["The ratios of all measurements that are kept:", "", *all_measurements(kept), ""]
    return "\n".join(lines)


def all_measurements(kept: dict[str, Any]) -> list[str]:
    names = [work["name"] for work in kept["bench"]["works"]]
    lines = [f"| measured (UTC) | revision | load | {' | '.join(names)} |", "|---|---|---:|" + "---:|" * len(names)]
    for one in measurements(kept):
        ratios = {work["name"]: f"{work['ratio']:.3f}" for work in one["works"]}
        cells = [
            f"{one['date']} {one.get('time', '')}".strip(),
            one["new"],
            one["load"],
            *(ratios[name] for name in names),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def commands_table(kept: dict[str, Any]) -> str:
    lines = ["| what | before | after | after / before [95 %] | pairs |", "|---|---:|---:|---:|---:|"]
    for name, found in kept["commands"].items():
        for part in ("training", "command"):
            old, new = ([one[part] for one in found[key]] for key in ("old", "new"))
            ratios = before_after.summary([after / before for before, after in zip(old, new)])
            seconds = " | ".join(f"{statistics.median(own):.1f} s" for own in (old, new))
            lines.append(f"| {name}: {part} | {seconds} | {before_after.ratio_text(ratios)} | {len(old)} |")
    for work in kept["before_after"]:
        ratio = before_after.ratio_text(work["wall"])
        lines.append(f"| rounds of ({work['work']}), one core | | | {ratio} | {work['pairs']} |")
    return "\n".join([*lines, "", f"Before: {kept['old']}, after: {kept['new']}. {about(kept)}", ""])


def render(kept: dict[str, Any]) -> None:
    page = PAGE.read_text()
    for name, text in (("bench", bench_table(kept)), ("commands", commands_table(kept))):
        begin, end = MARKS[name]
        head, found, rest = page.partition(begin)
        assert found, f"{PAGE} has no {begin}"
        page = f"{head}{begin}\n{text}{end}{rest.partition(end)[2]}"
    PAGE.write_text(page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, nargs="?")
    parser.add_argument("new", type=Path, nargs="?")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=30.0, help="of every workload of `undrift bench`")
    parser.add_argument("--bench", type=Path, metavar="NEW", help="measure the rounds beside the bare loop once more")
    parser.add_argument("--render", action="store_true", help="write the tables from the kept results")
    given = parser.parse_args()
    if given.bench:
        kept = json.loads(RESULTS.read_text())
        kept |= {"bench": rounds(given.bench, given.seconds), "earlier": measurements(kept)}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    elif not given.render:
        if given.old is None or given.new is None:
            parser.error("give two checkouts: OLD NEW")
        RESULTS.write_text(json.dumps(measured(given.old, given.new, given.pairs, given.seconds), indent=1) + "\n")
    render(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()
