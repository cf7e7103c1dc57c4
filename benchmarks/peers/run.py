"""The same works on the peers, each in an environment of its own, ours and the bare loop beside them. One command:

    python benchmarks/peers/run.py [--peers bare undrift pfl flower fedjax] [--works a b c] [--repeats 3]

Needs a Python with numpy that can make environments (3.11) and, for `bare` and `undrift`, Undrift's own (`.venv`).
Environments are made once, under UNDRIFT_PEERS (default ~/.cache/undrift-peers). Everybody trains the same samples of
the same clients in the same cohorts, evaluation off; the peers take turns, `--repeats` times, so that what else the
machine does hits all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]
from bare import KEEP_PAGES, fashion  # noqa: E402
from common import CLIENTS, COHORT  # noqa: E402

TORCH = "torch==2.13.0"  # the exact version gives the small CPU build; a looser request may pull CUDA
NEEDS = {
    "flower": [TORCH, "flwr[simulation]==1.41.0"],
    "pfl": [TORCH, "pfl[pytorch]==0.6.0"],
    "fedjax": ["fedjax==0.0.17", "jax==0.4.25", "jaxlib==0.4.25", "dm-haiku==0.0.12", "numpy<2", "scipy<1.13"],
}
VARIANTS = {"bare": ["optim", "kernel"], "flower": ["clients", "cohort"], "fedjax": ["jit", "pmap"]}
PEERS = ["bare", "undrift", "pfl", "flower", "fedjax"]
ROUNDS = {"a": 30, "b": 4, "c": 20}  # counted ones per turn, after the warm ones
WARM = {"bare": 2, "undrift": 2, "pfl": 3, "flower": 2, "fedjax": 1}
LIMIT = 1800  # seconds for one turn of one peer


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


def turn(peer: str, variant: str, work: str, rounds: int, python: Path, folder: Path) -> dict:
    out, log = folder / "answer.json", folder / f"{peer}-{variant or 'only'}-{work}.log"
    out.unlink(missing_ok=True)
    command = [str(python)]
    if peer == "pfl":
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(cores())]
    command += [str(HERE / f"{peer}_peer.py"), "--work", work, "--variant", variant, "--warm", str(WARM[peer])]
    command += ["--rounds", str(WARM[peer] + rounds), "--data", str(folder), "--out", str(out)]
    # What helps a peer is given to it: a malloc that keeps its pages, one thread a process where processes share work.
    extra = {**KEEP_PAGES, "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "JAX_PLATFORMS": "cpu",
             "PYTHONPATH": str(HERE)}  # fmt: skip
    if peer != "fedjax":
        extra["OMP_NUM_THREADS"] = "1"
    if variant == "pmap":
        extra["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={cores()}"
    with log.open("w") as lines:
        try:
            subprocess.run(command, stdout=lines, stderr=lines, env=os.environ | extra, timeout=LIMIT, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            return {"failed": f"{type(error).__name__}: {error}; see {log}"[-500:]}
    return json.loads(out.read_text())


def cores() -> int:
    return len(os.sched_getaffinity(0))


def machine() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    name = found[1] if found else platform.processor()
    return f"{name}, {cores()} cores, {platform.system()}, Python {platform.python_version()}"


def calm(patience: float) -> float:
    """Wait until the machine has nothing else to do, at most `patience` seconds; the share of it that is busy."""
    began = time.monotonic()
    while True:
        before = np.array(Path("/proc/stat").read_text().split()[1:9], dtype=float)
        time.sleep(1)
        spent = np.array(Path("/proc/stat").read_text().split()[1:9], dtype=float) - before
        busy = 1 - (spent[3] + spent[4]) / spent.sum()
        if busy < 0.1 or time.monotonic() - began > patience:
            return float(busy)


def summary(peer: str, work: str, turns: dict[str, list[dict]]) -> dict:
    """The fastest variant of a peer on a work, the others' figures beside it.

    `seconds` is the median of all counted rounds. `quiet` takes of every cohort the fastest of the turns, then the
    median over cohorts: what is left when something else on the machine disturbed some of the turns.
    """
    found = []
    for variant, answers in turns.items():
        timed = [answer["seconds"] for answer in answers if "seconds" in answer]
        if timed:
            every = np.array(timed)
            low, middle, high = np.percentile(every, [25, 50, 75])
            found.append({
                "peer": peer, "work": work, "variant": variant, "seconds": middle, "quartiles": [low, high],
                "quiet": np.median(every.min(0)), "rounds": every.size, "turns": np.median(every, axis=1).tolist(),
                "note": answers[-1].get("note", ""), "versions": answers[-1].get("versions", {}),
            })  # fmt: skip
    if not found:
        return {"peer": peer, "work": work, "failed": next(iter(turns.values()))[-1]["failed"]}
    found.sort(key=lambda entry: entry["quiet"])
    return {**found[0], "others": [{key: entry[key] for key in ("variant", "seconds", "quiet")} for entry in found[1:]]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--works", nargs="+", choices=list("abc"), default=list("abc"))
    parser.add_argument("--rounds", type=int, help="counted rounds of a turn (default: by work and peer)")
    parser.add_argument("--repeats", type=int, default=3, help="turns of every peer")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet machine before a turn")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    given = parser.parse_args()
    folder = Path(os.environ.get("UNDRIFT_PEERS", "~/.cache/undrift-peers")).expanduser()
    data = deal(folder / "data")
    pythons, rows, loads = {}, {(peer, work): {} for peer in given.peers for work in given.works}, []
    for peer in given.peers:
        try:
            pythons[peer] = environment(peer, folder)
        except (subprocess.CalledProcessError, AssertionError) as error:
            failed = f"cannot be installed: {(getattr(error, 'stderr', '') or str(error)).strip()[-800:]}"
            for work in given.works:
                rows[peer, work][""] = [{"failed": failed}]
    for repeat in range(given.repeats):
        for work in given.works:
            for peer, python in pythons.items():
                for variant in VARIANTS.get(peer, [""]):
                    loads.append(calm(given.patience))
                    answer = turn(peer, variant, work, given.rounds or ROUNDS[work], python, folder / "data")
                    rows[peer, work].setdefault(variant, []).append(answer)
                    told = f"{statistics.median(answer['seconds']):.4f} s" if "seconds" in answer else answer["failed"]
                    busy = f"(machine {loads[-1]:.0%} busy before)"
                    print(f"turn {repeat + 1}, ({work}) {peer} {variant}: {told} {busy}", file=sys.stderr, flush=True)
    results = [summary(peer, work, turns) for (peer, work), turns in rows.items()]
    about = {"date": time.strftime("%Y-%m-%d %H:%M %Z"), "machine": machine(), "data": data, "turns": given.repeats,
             "busy": statistics.mean(loads) if loads else 0.0,
             "command": "python " + " ".join([os.path.relpath(sys.argv[0], ROOT), *sys.argv[1:]])}  # fmt: skip
    text = json.dumps({**about, "results": results}, indent=1, ensure_ascii=False)
    given.out.write_text(re.sub(r"(\d\.\d{5})\d+", r"\1", text) + "\n")
    print(table(results, given.peers, given.works, about))


def table(results: list[dict], peers: list[str], works: list[str], about: dict) -> str:
    lines = [
        "| seconds per round: median (undisturbed) | " + " | ".join(f"({work})" for work in works) + " | versions |"
    ]
    lines.append("|---|" + "---:|" * len(works) + "---|")
    for peer in peers:
        mine = [entry for entry in results if entry["peer"] == peer]
        cells = [f"{e['seconds']:.3f} ({e['quiet']:.3f}) {e['variant']}" if "seconds" in e else "failed" for e in mine]
        versions = {k: v for entry in mine for k, v in entry.get("versions", {}).items()}
        lines.append(" | ".join([f"| {peer}", *cells, ", ".join(f"{k} {v}" for k, v in versions.items()) + " |"]))
    lines.append(
        f"\n{about['date']}, {about['machine']}, {about['data']}, machine {about['busy']:.0%} busy before a turn"
    )
    lines.append(about["command"])
    lines += [f"{entry['peer']} ({entry['work']}): {entry['failed']}" for entry in results if "failed" in entry]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
