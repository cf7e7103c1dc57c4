"""What `undrift watch` costs, and how soon a page shows a round (needs chromium and the extra `live`). Writes
benchmarks/watch.json and the table in docs/watch.md.

    python benchmarks/watch.py [--only delay]         # measures, keeps, renders
    python benchmarks/watch.py --render               # writes the table again from the kept results

delay         from the commit of a round to its number on the open page of a comparison of four methods
first paint   of the page of 200 runs, by the browser's own clock
memory, load  of the server with 20 runs, four of which end a round every second, and the page of all runs open
slowed        a real run that is watched over the same run alone, in pairs: processor time and wall time, with the interval of
              the median (`benchmarks/before_after.py`). Both are runs of one process, so that imports are not counted
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from undrift.core import system
from undrift.store.record import Record

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
RESULTS, PAGE = HERE / "watch.json", HERE.parent / "docs" / "watch.md"
BEGIN, END = "<!-- costs: begin -->", "<!-- costs: end -->"
ROUNDS_OF_RUNS = 24  # each has a run alone and two that are watched
# The process of the runs: it reads a folder, runs there, and answers with (processor seconds, wall seconds).
RUNS = """
import json, sys, time
import torch
import undrift as ud
torch.set_num_threads(1)
for line in sys.stdin:
    wall, processor = time.perf_counter(), time.process_time()
    ud.run("fedavg", out=line.strip(), rounds=60, clients=20, model="mlp(100)", engine="inline")
    print(json.dumps([time.process_time() - processor, time.perf_counter() - wall]), flush=True)
"""


def loaded(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


made, servers = loaded("made", TESTS / "live" / "made.py"), loaded("servers", TESTS / "live" / "test_server.py")
browser = loaded("browser", TESTS / "browser" / "conftest.py")
pairs_of = loaded("before_after", HERE / "before_after.py")


@contextlib.contextmanager
def opened(folder: Path, path: str) -> Iterator[tuple[Any, Any]]:
    """(browser, server) with a page open."""
    with (
        tempfile.TemporaryDirectory() as profile,
        servers.watching(str(folder)) as server,
        contextlib.closing(browser.Chrome(Path(profile))) as chrome,
    ):
        chrome.open(f"http://127.0.0.1:{server.port}{path}")
        assert chrome.until("document.getElementById('connection').textContent == 'live'")
        assert chrome.until("!!document.querySelector('.js-plotly-plot')")
        yield chrome, server


def going(run: Path) -> Record:
    """The record of a run that goes on: its lock is held until this process ends."""
    system.lock(os.open(run / "lock", os.O_RDWR))
    return Record(run / "run.sqlite")


def delay(folder: Path, rounds: int = 20) -> dict[str, float]:
    """Seconds from a commit to the page, of rounds of four runs in turn."""
    study, records = folder / "four", []
    for number, method in enumerate(("fedavg", "fedprox", "scaffold", "fliu")):
        run = made.made_run(study / f"{number:02d}-{method}-seed0", method, rounds=100, done=5)
        records.append((run, going(run)))
    methods = "".join(f'[[methods]]\nmethod = "{method}"\n' for method in ("fedavg", "fedprox", "scaffold", "fliu"))
    (study / "compare.toml").write_text(f"seeds = [[0, 0]]\n{methods}")
    found, moments = [], random.Random(0)
    with opened(folder, "/study?id=four") as (chrome, _):
        time.sleep(3)
        for round in range(5, 5 + rounds):
            number = round % 4
            made.add_round(records[number][1], next_round := 5 + (round - 5) // 4)
            committed = time.monotonic()
            shown = (
                f"document.querySelectorAll('#filling tbody tr')[{number}].textContent.includes('({next_round + 1}/')"
            )
            assert chrome.until(shown, 20)
            found.append(time.monotonic() - committed)
            time.sleep(moments.uniform(0.3, 1.3))  # at another moment of the server's clock
    for _, record in records:
        record.close()
    return {"median": statistics.median(found), "longest": max(found), "rounds": rounds}


def paint(folder: Path) -> dict[str, float]:
    for number in range(200):
        made.made_run(folder / f"run-{number:03d}", ("fedavg", "fliu", "scaffold")[number % 3], rounds=50, done=50)
    with opened(folder, "/") as (chrome, _):
        times = []
        for _ in range(5):
            chrome.ask("Page.reload")
            time.sleep(2)
            times.append(chrome.value("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000)
    return {"median": statistics.median(times), "longest": max(times)}


def cost(folder: Path, seconds: float = 40.0) -> dict[str, float]:
    """Megabytes and share of a core of the server."""
    records = []
    for number in range(20):
        run = made.made_run(
            folder / f"run-{number:02d}", ("fedavg", "fliu", "scaffold", "flood")[number % 4], rounds=500, done=100
        )
        if number < 4:
            records.append(going(run))
    with opened(folder, "/") as (_, server):
        time.sleep(5)
        pid, began, before = server.process.pid, time.monotonic(), cpu(server.process.pid)
        for round in range(100, 100 + int(seconds)):
            for record in records:
                made.add_round(record, round)
            time.sleep(max(0.0, began + round - 99 - time.monotonic()))
        share = (cpu(pid) - before) / (time.monotonic() - began)
        memory = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    for record in records:
        record.close()
    return {"megabytes": int(memory.split()[1]) / 1024, "share": share}


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def slowed(folder: Path) -> dict[str, dict[str, list[float]]]:
    """A run that is watched over the same run alone, one after the other: processor and wall seconds. The page is sent to a
    reader that draws nothing, or drawn by a browser on the same two cores. For the run alone the server is halted."""
    made.made_run(folder / "watched" / "first", done=3)
    runs = subprocess.Popen([sys.executable, "-c", RUNS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(place: Path) -> list[float]:
        assert runs.stdin is not None
        assert runs.stdout is not None
        print(place, file=runs.stdin, flush=True)
        return list(json.loads(runs.stdout.readline()))

    ratios: dict[str, dict[str, list[float]]] = {how: {"processor": [], "wall": []} for how in ("sent", "drawn")}
    ways = ["alone", *ratios]
    with runs, opened(folder / "watched", "/") as (chrome, server):
        page = f"http://127.0.0.1:{server.port}/"
        run(folder / "first")
        for number in range(ROUNDS_OF_RUNS):
            found = {}
            for name in ways[number % 3 :] + ways[: number % 3]:
                server.process.send_signal(signal.SIGCONT)
                chrome.open(page if name == "drawn" else "about:blank")
                with stream(server.port) if name == "sent" else contextlib.nullcontext():
                    time.sleep(0.5)
                    server.process.send_signal(signal.SIGSTOP if name == "alone" else signal.SIGCONT)
                    found[name] = run(folder / ("alone" if name == "alone" else "watched") / f"{name}-{number}")
            for name, by_clock in ratios.items():
                for clock, watched, alone in zip(by_clock, found[name], found["alone"]):
                    by_clock[clock].append(round(watched / alone, 4))
        server.process.send_signal(signal.SIGCONT)
        chrome.open(page)
        shown = f"document.querySelectorAll('#table tbody tr').length == {2 * ROUNDS_OF_RUNS + 1}"
        assert chrome.until(shown), "the runs were not watched"
    return ratios


@contextlib.contextmanager
def stream(port: int) -> Iterator[None]:
    """The events of the page of all runs, read and thrown away by a process that does nothing else."""
    program = (
        f"import urllib.request\nfor line in urllib.request.urlopen('http://127.0.0.1:{port}/events?page=runs'): pass"
    )
    reader = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        reader.kill()
        reader.wait()


MEASURED = {"delay": delay, "paint": paint, "cost": cost, "slowed": slowed}


def table(kept: dict[str, Any]) -> str:
    """The kept results beside their limits."""
    delayed, painted, server, ratios = (kept[name] for name in MEASURED)
    longest = f"longest of {delayed['found']['rounds']}: {delayed['found']['longest']:.2f} s"
    said = {"sent": "the page is sent and not drawn", "drawn": "a browser on the same two cores draws it"}
    slower = [
        (f"a watched run over one alone, {clock} time: {said[how]}", "1", pairs_of.ratio_text(pairs_of.summary(values)), ratios)
        for how, by_clock in ratios["found"].items() for clock, values in by_clock.items()
    ]  # fmt: skip
    rows = [
        ("from a round's commit to the open page of four methods", "under 2 s",
         f"median {delayed['found']['median']:.2f} s, {longest}", delayed),
        ("first paint, 200 runs", "under 2 s", f"median {painted['found']['median']:.2f} s", painted),
        ("memory, 20 runs of which four end a round every second", "under 100 MB",
         f"{server['found']['megabytes']:.0f} MB", server),
        ("load of the same", "under 2 % of a core", f"{100 * server['found']['share']:.1f} %", server),
        *slower,
    ]  # fmt: skip
    head = "| what | wanted | measured | day, load of the machine |\n|---|---|---|---|"
    return "\n".join(
        [head, *(f"| {what} | {limit} | {text} | {one['day']}, {one['load']:.0f} |" for what, limit, text, one in rows)]
    )


def render(kept: dict[str, Any]) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(kept)}\n{END}{rest.partition(END)[2]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=tuple(MEASURED), help="only this")
    parser.add_argument("--render", action="store_true", help="write the table from the kept results")
    given = parser.parse_args()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in () if given.render else (given.only,) if given.only else MEASURED:
        with tempfile.TemporaryDirectory() as place:
            load = os.getloadavg()[0]
            kept[name] = {
                "found": MEASURED[name](Path(place)),
                "day": time.strftime("%Y-%m-%d"),
                "load": round(load, 1),
            }
        print(f"{name}: {json.dumps(kept[name])}", flush=True)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    if set(MEASURED) <= set(kept):
        render(kept)


if __name__ == "__main__":
    main()
