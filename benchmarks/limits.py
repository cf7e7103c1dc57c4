"""How far it scales: clients, rounds, parameters, runs. Writes benchmarks/limits.json and the table in docs/benchmarks.md.

    python benchmarks/limits.py [--only NAME ...]     # measures, and keeps earlier results of the others
    python benchmarks/limits.py --render              # writes the table again from the kept results

Seconds are wall time of the whole command, and the processor's time of all its processes, which other work on the machine
hardly changes. Memory is the peak of the proportional set size over all processes of the
command, sampled five times a second: shared memory counts once.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from undrift.store import checksums
from undrift.store.record import Record

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = HERE / "limits.json", HERE.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- limits: begin -->", "<!-- limits: end -->"
COMMAND = [sys.executable, "-c", "from undrift.cli import main; main()"]
WIDE = "mlp(7000,7000)"  # on digits: 49.5 million parameters
LAZY = ["--partition", "resample(60)", "--model", "logistic", "--cohort", "100", "--rounds", "2", "--epochs", "1"]


def processes(pid: str) -> Iterator[str]:
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from processes(child)


def memory(pid: int) -> float:
    """MB of a process and its descendants."""
    total = 0
    try:
        for one in processes(str(pid)):
            found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{one}/smaps_rollup").read_text(), re.MULTILINE)
            total += int(found[1]) if found else 0
    except OSError:
        pass  # a process ended meanwhile
    return total / 1000


def measured(*arguments: str, folder: str) -> dict[str, float]:
    """Seconds, processor seconds and peak MB of one command."""
    began, before, peak = time.perf_counter(), processor_time(), 0.0
    process = subprocess.Popen([*COMMAND, *arguments], cwd=folder, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, memory(process.pid))
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"undrift {' '.join(arguments)} failed with {process.returncode}")
    seconds = {"seconds": time.perf_counter() - began, "processor": processor_time() - before}
    return {**{name: round(value, 1) for name, value in seconds.items()}, "MB": round(peak)}


def processor_time() -> float:
    """Of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def registered(clients: int, *more: str) -> Callable[[str], dict[str, float]]:
    def work(folder: str) -> dict[str, float]:
        return measured("run", "--clients", str(clients), *LAZY, *more, "--quiet", "--out", "r", folder=folder)

    return work


def rounds(folder: str) -> dict[str, float]:
    """`show` of a run with 5,000 rounds, and how much its record grows per round."""
    measured("run", "--clients", "2", "--cohort", "1.0", "--model", "logistic", "--epochs", "1", "--rounds", "5000",
             "--engine", "inline", "--quiet", "--out", "r", folder=folder)  # fmt: skip
    record = sum(path.stat().st_size for path in Path(folder, "r").glob("run.sqlite*"))
    return {**measured("show", "r", folder=folder), "kB per round": round(record / 5000 / 1000, 1)}


def parameters(method: str, sent: int) -> Callable[[str], dict[str, float]]:
    """Ten clients of a network with 49.5 million parameters. `sent`: vectors that each of them sends to the server."""

    def work(folder: str) -> dict[str, float]:
        found = measured("run", "--method", method, "--model", WIDE, "--clients", "10", "--cohort", "10", "--rounds", "2",
                         "--epochs", "1", "--batch", "512", "--evaluate-every", "2", "--engine", "processes", "--workers",
                         "2", "--quiet", "--out", "r", folder=folder)  # fmt: skip
        vectors = 10 * sent * 4 * 49.5e6 / 1e6
        return {**found, "MB sent by the cohort": round(vectors), "ratio": round(found["MB"] / vectors, 2)}

    return work


def copies(folder: str, count: int) -> list[str]:
    """Folders of `count` runs with different learning rates: ten methods were run, the others are copies of them."""
    names = ("fedavg", "scaffold", "fedprox", "flood", "fliu", "bound", "fedbss", "fednolowe", "feddyn", "fedavgm")
    for name in names:
        measured("run", "--method", name, "--rounds", "50", "--epochs", "1", "--engine", "inline", "--quiet", "--out",
                 f"base/{name}", folder=folder)  # fmt: skip
    made = []
    for number in range(count):
        base = Path(folder, "base", names[number % 10])
        place = Path(folder, "many", f"{base.name}-{number // 10}")
        place.mkdir(parents=True)
        for name in ("run.sqlite", "model.safetensors"):
            shutil.copy(base / name, place)
        text = re.sub(r"(?m)^lr = .*$", f"lr = {0.001 * (1 + number // 10):g}", (base / "run.toml").read_text())
        (place / "run.toml").write_text(text)
        record = Record(place / "run.sqlite")
        record.keep_text("run.toml", text)
        record.close()
        checksums.note_file(place / "run.sqlite")  # as a run does when it ends
        made.append(f"many/{place.name}")
    return made


def report(count: int) -> Callable[[str], dict[str, float]]:
    def work(folder: str) -> dict[str, float]:
        found = measured("report", *copies(folder, count), "--out", "page.html", folder=folder)
        return {**found, "MB on disk": round(Path(folder, "page.html").stat().st_size / 1e6, 1)}

    return work


def listing(folder: str) -> dict[str, float]:
    copies(folder, 1000)
    return measured("runs", "many", folder=folder)


LIMITS: dict[str, tuple[str, Callable[[str], dict[str, float]]]] = {
    "clients-20k": ("20,000 registered clients, `resample(60)`, cohort 100, scaffold", registered(20_000, "--method", "scaffold")),
    "clients-1m": ("1,000,000 registered clients, the same", registered(1_000_000, "--method", "scaffold")),
    "validation-20k": ("20,000 clients with `--validation 0.1`", registered(20_000, "--validation", "0.1")),
    "validation-200k": ("200,000 clients with `--validation 0.1`", registered(200_000, "--validation", "0.1")),
    "rounds": ("`undrift show` of 5,000 rounds", rounds),
    "wide-fedavg": ("49.5 million parameters, 10 clients, two workers, fedavg", parameters("fedavg", 1)),
    "wide-scaffold": ("the same, scaffold", parameters("scaffold", 2)),
    "report-100": ("a report of 100 separate runs", report(100)),
    "report-1000": ("a report of 1,000 separate runs", report(1000)),
    "runs-1000": ("`undrift runs` of 1,000 runs", listing),
}  # fmt: skip


def machine() -> str:
    """The processor, the number of cores, and how busy they were."""
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*:\s*(.*)", text)
    return f"{os.cpu_count()} cores of {model[1] if model else platform.processor()}"


def table(kept: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["| what | seconds | processor | MB | also | load of the machine, date |", "|---|---:|---:|---:|---|---|"]
    for name, (what, _) in LIMITS.items():
        if name in kept:
            found = kept[name]
            also = ", ".join(
                f"{key} {value}" for key, value in found["numbers"].items() if key not in ("seconds", "processor", "MB")
            )
            numbers = (
                f"{found['numbers']['seconds']} | {found['numbers'].get('processor', '—')} | {found['numbers']['MB']:,}"
            )
            lines.append(f"| {what} | {numbers} | {also or '—'} | {found['load']}, {found['date']} |")
    machines = "; ".join(sorted({found["machine"] for found in kept.values()}))
    return "\n".join(
        [*lines, "", f"Measured on {machines}. A load above the number of cores means that other work ran."]
    )


def render(kept: dict[str, Any]) -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(kept)}\n{END}{rest.partition(END)[2]}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=list(LIMITS))
    parser.add_argument("--render", action="store_true")
    given = parser.parse_args()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in () if given.render else given.only or LIMITS:
        with tempfile.TemporaryDirectory() as folder:
            load = f"{os.getloadavg()[0]:.0f}"
            numbers = LIMITS[name][1](folder)
        kept[name] = {"numbers": numbers, "date": time.strftime("%Y-%m-%d"), "machine": machine(), "load": load}
        print(f"{LIMITS[name][0]}: {', '.join(f'{value:,} {key}' for key, value in numbers.items())}", flush=True)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    render(kept)


if __name__ == "__main__":
    main()
