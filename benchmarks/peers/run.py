"""The same works on the peers, each in an environment of its own, ours and the bare loop beside them. One command:

    python benchmarks/peers/run.py [--peers bare undrift pfl fedjax flower] [--works a b c] [--rounds 30]

Needs a Python with numpy that can make environments (3.11), best Undrift's own (`.venv`), in which `bare` and `undrift`
run. The peers' are made once, under UNDRIFT_PEERS (default ~/.cache/undrift-peers).
Everybody trains the same samples of the same clients in the same cohorts, evaluation off. The peers are there at the
same time and take turns round by round, so that what else the machine does hits all of them; the clock runs from the
word "go" to the peer's next "ready". Flower alone runs apart: its runtime works even while it waits.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src" / "undrift" / "bench")]  # the bare loop imports nothing of ours
from bare import KEEP_PAGES, fashion  # noqa: E402
from common import CLIENTS, COHORT  # noqa: E402

TORCH = "torch==2.13.0"  # the exact version gives the small CPU build; a looser request may pull CUDA
NEEDS = {
    "pfl": [TORCH, "pfl[pytorch]==0.6.0"],
    "fedjax": ["fedjax==0.0.17", "jax==0.4.25", "jaxlib==0.4.25", "dm-haiku==0.0.12", "numpy<2", "scipy<1.13"],
    "flower": [TORCH, "flwr[simulation]==1.41.0"],
}
VARIANTS = {"bare": ["optim", "kernel"], "fedjax": ["jit", "pmap"], "flower": ["clients", "cohort"]}
PEERS = ["bare", "undrift", "pfl", "fedjax", "flower"]
ROUNDS = {"a": 40, "b": 7, "c": 40}  # counted ones, after the warm ones
FLOWER = {"a": 6, "b": 4, "c": 2}  # of Flower alone: its rounds are long, and all alike
WARM = 2
LIMIT = 600  # seconds for one round, or for the start


def environment(peer: str, folder: Path) -> Path:
    """The Python of a peer, installed at the first call."""
    if peer in ("bare", "undrift"):
        return ROOT / ".venv/bin/python"
    home, wanted = folder / peer, " ".join(NEEDS[peer])
    ready = home / "ready.txt"
    if not ready.exists() or ready.read_text() != wanted:
        print(f"installing {wanted} into {home}", file=sys.stderr)
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        constraints = folder / f"{peer}-constraints.txt"
        constraints.write_text("\n".join(re.sub(r"\[.*\]", "", need) for need in NEEDS[peer]) + "\n")
        pip = [home / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-c", constraints, *NEEDS[peer]], check=True, stderr=subprocess.PIPE, text=True)
        names = subprocess.run([home / "bin/python", "-m", "pip", "list"], check=True, capture_output=True, text=True)
        assert "nvidia-" not in names.stdout, f"CUDA packages came along into {home}"
        ready.write_text(wanted)
    return home / "bin/python"


def deal(folder: Path) -> str:
    """x.npy, y.npy and, for 100 and 1000 clients, who holds what (Dirichlet 0.5) and who trains when."""
    x, y, name = fashion()
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    for work in "ac":
        draw = np.random.default_rng(0)
        parts = dirichlet(y, CLIENTS[work], draw)
        cohorts = [draw.choice(CLIENTS[work], COHORT[work], replace=False) for _ in range(200)]
        ends = np.cumsum([len(part) for part in parts])
        np.savez(folder / f"deal-{CLIENTS[work]}.npz", rows=np.concatenate(parts), ends=ends, cohorts=cohorts)
    return name


def dirichlet(y: np.ndarray, clients: int, draw: np.random.Generator, beta: float = 0.5, least: int = 10) -> list:
    """The recipe of NIID-Bench: class by class, clients that have their share already get no more of it."""
    while True:
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        sizes = np.zeros(clients)
        for c in range(10):
            rows = draw.permutation(np.flatnonzero(y == c))
            share = draw.dirichlet(np.full(clients, beta)) * (sizes < len(y) / clients)
            cuts = (np.cumsum(share / share.sum())[:-1] * len(rows)).astype(int)
            for part, piece in zip(parts, np.split(rows, cuts)):
                part.append(piece)
            sizes += np.diff(cuts, prepend=0, append=len(rows))
        if sizes.min() >= least:
            return [np.sort(np.concatenate(part)) for part in parts]


class Runner:
    """A peer at work, one round at a time."""

    def __init__(self, peer: str, variant: str, work: str, rounds: int, python: Path, folder: Path) -> None:
        self.peer, self.variant, self.work, self.seconds, self.failed = peer, variant, work, [], ""
        self.log = folder / f"{peer}-{variant or 'only'}-{work}.log"
        path = folder / "gate"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as door, self.log.open("w") as lines:
            door.bind(str(path))
            door.listen()
            door.settimeout(1)
            command = [str(python), str(HERE / f"{peer}_peer.py")]
            if peer == "pfl":
                command[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(cores())]
            command += ["--work", work, "--variant", variant, "--rounds", str(rounds), "--data", str(folder)]
            self.process = subprocess.Popen(
                [*command, "--gate", str(path)], stdout=lines, stderr=lines, env=self.words(), start_new_session=True
            )
            self.lines: list[socket.socket] = []
            try:
                while len(self.lines) < (cores() if peer == "pfl" else 1):
                    self.lines.append(self.arrival(door))
                self.about = dict(*map(json.loads, {self.first(line) for line in self.lines}))  # all say the same
                self.wait()
            except (OSError, ValueError) as error:
                self.fail(error)

    def words(self) -> dict[str, str]:
        """What helps a peer is given to it: a malloc that keeps its pages, one thread where processes share work."""
        words = {**os.environ, **KEEP_PAGES, "PYTHONPATH": str(HERE), "JAX_PLATFORMS": "cpu",
                 "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}  # fmt: skip
        if self.peer != "fedjax":
            words["OMP_NUM_THREADS"] = "1"
        if self.variant == "pmap":
            words["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={cores()}"
        return words

    def arrival(self, door: socket.socket) -> socket.socket:
        for _ in range(LIMIT):
            try:
                line = door.accept()[0]
                line.settimeout(LIMIT)
                return line
            except TimeoutError:
                if self.process.poll() is not None:
                    raise OSError(f"ended with {self.process.returncode} before its first round") from None
        raise OSError(f"not ready after {LIMIT} s")

    def first(self, line: socket.socket) -> bytes:
        text = b""
        while not text.endswith(b"\n"):
            text += line.recv(1) or b"\n"
        return text

    def wait(self) -> None:
        if any(line.recv(1) != b"r" for line in self.lines):
            raise OSError("ended in mid-run")

    def round(self) -> None:
        if self.failed:
            return
        try:
            began = time.perf_counter()
            self.go()
            self.wait()
            self.seconds.append(time.perf_counter() - began)
        except OSError as error:
            self.fail(error)

    def go(self) -> None:
        for line in self.lines:
            line.sendall(b"g")

    def fail(self, error: Exception) -> None:
        self.failed = f"{error}; {self.log} ends with: {self.log.read_text()[-300:].strip()}"
        self.process.kill()

    def close(self) -> None:
        if not self.failed:
            self.go()
        for line in self.lines:
            line.close()
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def result(self, beside: Runner | None) -> dict:
        """Median and quartiles of the counted rounds, and the median of the paired ratios to the bare loop."""
        entry = {"peer": self.peer, "work": self.work, "variant": self.variant}
        seconds = np.array(self.seconds[WARM:])
        if self.failed or not len(seconds):
            return {**entry, "failed": self.failed or "no round counted"}
        low, middle, high = np.percentile(seconds, [25, 50, 75]).round(4).tolist()
        entry |= {
            "seconds": middle,
            "quartiles": [low, high],
            "fastest": round(float(seconds.min()), 4),
            "rounds": len(seconds),
        }
        if beside is not None and len(beside.seconds) == len(self.seconds):
            entry["over_bare"] = round(float(np.median(seconds / np.array(beside.seconds[WARM:]))), 3)
        return {**entry, **self.about}


def together(group: list[tuple[str, str]], work: str, rounds: int, pythons: dict, folder: Path) -> list[Runner]:
    runners = [Runner(peer, variant, work, rounds + WARM, pythons[peer], folder) for peer, variant in group]
    try:
        for number in range(rounds + WARM):
            for at in range(len(runners)):  # whoever begins is another one every time
                runners[(number + at) % len(runners)].round()
    finally:
        for runner in runners:
            runner.close()
    return runners


def cores() -> int:
    return len(os.sched_getaffinity(0))


def machine() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{found[1] if found else platform.processor()}, {cores()} cores, {platform.system()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--works", nargs="+", choices=list("abc"), default=list("abc"))
    parser.add_argument("--rounds", type=int, help=f"counted rounds (default: {ROUNDS})")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    given = parser.parse_args()
    folder = Path(os.environ.get("UNDRIFT_PEERS", "~/.cache/undrift-peers")).expanduser()
    data, pythons, results, loads = deal(folder / "data"), {}, [], []
    for peer in given.peers:
        try:
            pythons[peer] = environment(peer, folder)
        except (subprocess.CalledProcessError, AssertionError) as error:
            failed = f"cannot be installed: {(getattr(error, 'stderr', '') or str(error)).strip()[-800:]}"
            results += [{"peer": peer, "work": work, "variant": "", "failed": failed} for work in given.works]
    paired: dict[str, float] = {}
    about = written(given.out, results, loads, paired, data)
    for work in given.works:
        variants = [(peer, variant) for peer in pythons for variant in VARIANTS.get(peer, [""])]
        groups = [
            [pair for pair in variants if pair[0] != "flower"],
            *([pair] for pair in variants if pair[0] == "flower"),
        ]
        for group in filter(None, groups):
            loads.append(os.getloadavg()[0])
            rounds = given.rounds or (FLOWER if group[0][0] == "flower" else ROUNDS)[work]
            runners = together(group, work, rounds, pythons, folder / "data")
            bare = next((runner for runner in runners if (runner.peer, runner.variant) == ("bare", "optim")), None)
            results += [runner.result(bare) for runner in runners]
            ours, pfl = (
                next((r for r in runners if r.peer == name and not r.failed), None) for name in ("undrift", "pfl")
            )
            if ours and pfl:
                ratios = np.array(ours.seconds[WARM:]) / np.array(pfl.seconds[WARM:])
                paired[work] = round(float(np.median(ratios)), 3)
            about = written(given.out, results, loads, paired, data)
            for entry in results[-len(runners) :]:
                print({key: entry[key] for key in list(entry)[:7]}, file=sys.stderr, flush=True)
    print(table(results, given.works, about))


def written(out: Path, results: list[dict], loads: list[float], paired: dict[str, float], data: str) -> dict:
    """results.json, after every group: a long run that is stopped has not run for nothing."""
    about = {
        "date": time.strftime("%Y-%m-%d %H:%M %Z"), "machine": machine(), "data": data,
        "load_before": [round(load, 1) for load in loads], "undrift_over_pfl": paired,
        "command": "python " + " ".join([os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]]),
    }  # fmt: skip
    out.write_text(json.dumps({**about, "results": results}, indent=1, ensure_ascii=False) + "\n")
    return about


def table(results: list[dict], works: list[str], about: dict) -> str:
    lines = [
        "| | " + " | ".join(f"({work})" for work in works) + " | versions |",
        "|---|" + "---:|" * len(works) + "---|",
    ]
    for peer, variant in dict.fromkeys((entry["peer"], entry["variant"]) for entry in results):
        mine = {e["work"]: e for e in results if (e["peer"], e["variant"]) == (peer, variant)}
        cells = []
        for work in works:
            entry = mine.get(work, {"failed": "not run"})
            ratio = f" ({entry['over_bare']:.2f}×)" if "over_bare" in entry else ""
            cells.append("failed" if "failed" in entry else f"{entry['seconds']:.3f}{ratio}")
        versions = {k: v for entry in mine.values() for k, v in entry.get("versions", {}).items()}
        name = f"{peer} {variant}".strip()
        lines.append(" | ".join([f"| {name}", *cells, ", ".join(f"{k} {v}" for k, v in versions.items()) + " |"]))
    lines.append("\nSeconds per round, median; in brackets the median of the paired ratios to the bare loop.")
    lines.append(
        f"Ours over pfl, paired: {about['undrift_over_pfl']}. {about['date']}, {about['machine']}, {about['data']}."
    )
    lines.append(f"Load of the machine before each group: {about['load_before']}. {about['command']}")
    lines += [f"{e['peer']} {e['variant']} ({e['work']}): {e['failed']}" for e in results if "failed" in e]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
