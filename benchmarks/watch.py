"""What `undrift watch` costs, and how soon a page shows a round: `python benchmarks/watch.py` (needs chromium and the extra `live`).

delay         from the commit of a round to its number on the open page of a comparison of four methods
first paint   of the page of 200 runs, by the browser's own clock
memory, load  of the server with 20 runs, four of which end a round every second, and the page of all runs open
slowed        a real run that is watched over the same run alone, in pairs: processor time and wall time, with the interval of
              the median (`benchmarks/before_after.py`)
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import resource
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
from undrift.store.record import Record, rows_of

TESTS = Path(__file__).parents[1] / "tests"
UNDRIFT = [sys.executable, "-c", "from undrift.cli import main; main()"]


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
pairs_of = loaded("before_after", Path(__file__).with_name("before_after.py"))


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


def delays(folder: Path, rounds: int = 20) -> list[float]:
    """Seconds from a commit to the page, of rounds of four runs in turn."""
    study, records = folder / "four", []
    for number, method in enumerate(("fedavg", "fedprox", "scaffold", "fliu")):
        run = made.made_run(study / f"{number:02d}-{method}-seed0", method, rounds=100, done=5)
        records.append((run, going(run)))
    methods = "".join(f'[[methods]]\nmethod = "{method}"\n' for method in ("fedavg", "fedprox", "scaffold", "fliu"))
    (study / "compare.toml").write_text(f"seeds = [[0, 0]]\n{methods}")
    found = []
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
            time.sleep(0.37)  # at another moment of the server's clock
    for _, record in records:
        record.close()
    return found


def first_paint(folder: Path) -> float:
    for number in range(200):
        made.made_run(folder / f"run-{number:03d}", ("fedavg", "fliu", "scaffold")[number % 3], rounds=50, done=50)
    with opened(folder, "/") as (chrome, _):
        times = []
        for _ in range(5):
            chrome.ask("Page.reload")
            time.sleep(2)
            times.append(chrome.value("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000)
    return statistics.median(times)


def cost(folder: Path, seconds: float = 40.0) -> tuple[float, float]:
    """(megabytes, share of a core) of the server."""
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
    return int(memory.split()[1]) / 1024, share


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def slowed(folder: Path, pairs: int) -> dict[str, list[float]]:
    """A run whose page is open over the same run alone, of pairs one after the other: the processor's seconds of the whole
    run, and the wall seconds of its rounds. The server is halted while the other one runs. What it takes itself is in `cost`."""
    options = ["run", "--rounds", "60", "--clients", "20", "--model", "mlp(100)", "--engine", "inline", "--quiet"]

    def run(place: Path) -> dict[str, float]:
        before = processor_time()
        subprocess.run([*UNDRIFT, *options, "--out", str(place)], check=True)
        rounds = float(rows_of(place, "SELECT SUM(seconds) FROM rounds WHERE round >= 5")[0][0])
        return {"processor": processor_time() - before, "wall": rounds}

    ratios: dict[str, list[float]] = {"processor": [], "wall": []}
    made.made_run(folder / "watched" / "first", done=3)
    with opened(folder / "watched", "/") as (_, server):
        for number in range(pairs):
            found = {}
            for name in ("watched", "alone") if number % 2 else ("alone", "watched"):
                server.process.send_signal(signal.SIGCONT if name == "watched" else signal.SIGSTOP)
                found[name] = run(folder / name / f"run-{number}")
            for clock in ratios:
                ratios[clock].append(found["watched"][clock] / found["alone"][clock])
        server.process.send_signal(signal.SIGCONT)
    return ratios


def processor_time() -> float:
    """Of the processes that have ended: the runs. The server and the browser go on."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def page_and_server(folder: Path) -> None:
    found = delays(folder / "a")
    print(
        f"delay: median {statistics.median(found):.2f} s, longest {max(found):.2f} s, {len(found)} rounds of 4 methods"
    )
    print(f"first paint, 200 runs: {first_paint(folder / 'b'):.2f} s")
    memory, share = cost(folder / "c")
    print(f"server, 20 runs, 4 going on: {memory:.0f} MB, {100 * share:.1f} % of a core")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=12, help="pairs of runs, watched and not")
    parser.add_argument("--only", choices=("slowed",), help="only this")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if given.only is None:
            page_and_server(folder)
        for clock, ratios in slowed(folder / "d", given.pairs).items():
            shown = pairs_of.ratio_text(pairs_of.summary(ratios))
            print(f"a watched run over one that is not, {clock} time: {shown}, {len(ratios)} pairs")


if __name__ == "__main__":
    main()
