"""Hashes of results that must not change: kept in one list per kind of processor, and compared.

    python tests/hashes/keep.py            # compare the installed `undrift` with the list of this kind of processor
    python tests/hashes/keep.py --write    # write that list

Lists whose names end with `-lockstep` are of runs in lock-step (`--lockstep`). All others are of clients one by one.

Every published method runs for six rounds, on the default network and on one with BatchNorm and dropout; FedAvg also for
thirty. An entry has two hashes: `model_sha256` as `undrift run --json` prints it, and `stages_sha256` over the printed
figures of all stages, because Ditto's global model is FedAvg's and only its clients' own models tell them apart.

Processors add up in different orders, so bits differ between kinds of them, and a list is compared on its own kind only.
`ATEN_CPU_CAPABILITY=avx2` makes an AVX512 processor use torch's AVX2 code, and so writes the list of a lesser kind; MKL
still sees the real processor. With two variables neither torch nor MKL looks at it, and that list (seen so far on one
vendor's processors only) is meant to hold on all of x86_64:

    ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE python tests/hashes/keep.py

A list must come from the commit that is the reference, not from the one that is in doubt:

    git worktree add ../reference COMMIT
    PYTHONPATH=../reference/src python tests/hashes/keep.py --write
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import undrift as ud
from undrift.experiment.options import FIELDS

HERE = Path(__file__).parent
# Inline, because what is compared is arithmetic: that engines agree is stated by tests/engines.
COMMON = {"data": "digits", "partition": "dirichlet(0.1)", "clients": 20, "cohort": 0.5, "seed": 0, "engine": "inline"}
BATCHNORM = "mlp(100, norm=batch, dropout=0.2)"
HASHES = ("model_sha256", "stages_sha256")
CHANGING_BITS = ("ATEN_CPU_CAPABILITY", "MKL_CBWR")


def kind(lockstep: bool = False) -> str:
    """`x86_64-AuthenticAMD-AVX512`: what decides in which order a processor adds up, as a file's name. The list of runs in
    lock-step has `-lockstep` at its end."""
    capability, reproducible = torch.backends.cpu.get_cpu_capability(), os.environ.get("MKL_CBWR", "")
    if (capability, reproducible) == ("DEFAULT", "COMPATIBLE"):
        # neither torch nor MKL looks at the processor
        return f"{platform.machine()}-any{'-lockstep' * lockstep}"
    words = [platform.machine(), vendor(), capability, *([f"MKL_CBWR={reproducible}"] if reproducible else [])]
    words += ["lockstep"] * lockstep
    return "-".join(re.sub(r"[^\w.=]+", "_", word) for word in words)


def vendor() -> str:
    """MKL takes other paths on another vendor's processor, whatever it is capable of."""
    return cpuinfo("vendor_id") or cpuinfo("CPU implementer") or platform.system()


def cpuinfo(key: str) -> str:
    try:
        found = re.search(rf"^{key}\s*:\s*(\S.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:  # not Linux
        return ""
    return found[1].strip() if found else ""


def entries(lockstep: bool) -> Iterator[dict[str, Any]]:
    """What is run: options of `ud.run` beside the common ones. In lock-step: what can be."""
    if lockstep:
        for name, proxy in published():
            yield {"method": name, "rounds": 6, "lockstep": "on", **({"proxy": 0.05} if proxy else {})}
        return
    yield {"method": "fedavg", "rounds": 30}
    for network in ({}, {"model": BATCHNORM}):
        for name, proxy in published():
            yield {"method": name, "rounds": 6, **network, **({"proxy": 0.05} if proxy else {})}


def published() -> list[tuple[str, bool]]:
    """Names, and whether they need a proxy set; from the command, whose output outlives the modules behind it."""
    command = [sys.executable, "-c", "from undrift.cli import main; main()", "methods", "--json"]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return [(method["name"], method["needs_proxy"]) for method in found]


def name_of(entry: dict[str, Any]) -> str:
    return (
        f"{entry['method']}-{entry['rounds']}" + "-batchnorm" * ("model" in entry) + "-lockstep" * ("lockstep" in entry)
    )


def hashes(entry: dict[str, Any]) -> dict[str, str]:
    options = {key: value for key, value in entry.items() if key not in HASHES}
    one_by_one = {"lockstep": "off"} if "lockstep" in FIELDS else {}  # an older reference knows nothing else
    summary = ud.run(**{**COMMON, **one_by_one, **options}, out=False).summary
    stages = json.dumps(summary["stages"], sort_keys=True)  # floats are written with all their digits
    return {"model_sha256": summary["model_sha256"], "stages_sha256": hashlib.sha256(stages.encode()).hexdigest()}


def path_of(kind: str) -> Path:
    return HERE / f"{kind}.json"


def read(kind: str) -> dict[str, Any] | None:
    return json.loads(path_of(kind).read_text()) if path_of(kind).exists() else None


def why_not(kept: dict[str, Any] | None, kind: str) -> str:
    """Why this list says nothing here, and what to do about it; empty where it does."""
    if kept is not None and kept["torch"] == torch.__version__:
        return ""
    commits = {json.loads(path.read_text())["commit"] for path in sorted(HERE.glob("*.json"))}
    what = "no list of hashes" if kept is None else f"a list of torch {kept['torch']}, not {torch.__version__},"
    return (
        f"there is {what} for {kind}; `PYTHONPATH=../reference/src python tests/hashes/keep.py --write` writes one, "
        f"after `git worktree add ../reference {' or '.join(sorted(commits)) or 'COMMIT'}`; or compare with the list "
        f"of all {platform.machine()} processors: set ATEN_CPU_CAPABILITY=default and MKL_CBWR=COMPATIBLE"
    )


def write(lockstep: bool) -> Path:
    found = []
    for entry in entries(lockstep):
        try:
            found.append({**entry, **hashes(entry)})
        except ValueError as error:  # a request that is refused, such as FedBN on a network without norms
            print(f"{name_of(entry):<28} left out: {error}")
        else:
            print(f"{name_of(entry):<28} {found[-1]['model_sha256']}", flush=True)
    about = {
        "kind": kind(lockstep), "processor": cpuinfo("model name") or platform.processor(), "torch": torch.__version__,
        "numpy": version("numpy"), "python": platform.python_version(), "date": time.strftime("%Y-%m-%d"),
        "commit": commit(), "command": command() + " --lockstep" * lockstep, "common": COMMON,
    }  # fmt: skip
    lines = ",\n".join(f"    {json.dumps(entry)}" for entry in found)  # one line each: a difference is read as one
    head = json.dumps(about, indent=2).removesuffix("\n}")
    path_of(kind(lockstep)).write_text(f'{head},\n  "entries": [\n{lines}\n  ]\n}}\n')
    return path_of(kind(lockstep))


def version(package: str) -> str:
    import importlib.metadata

    return importlib.metadata.version(package)


def commit() -> str:
    """Of the source that ran, which need not be the checkout of this file."""
    folder = Path(ud.__file__).parent
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True)
    changed = subprocess.run(["git", "status", "--porcelain", "."], cwd=folder, capture_output=True, text=True)
    return (found.stdout.strip() or "unknown") + (" with changes" if changed.stdout.strip() else "")


def command() -> str:
    variables = [f"{name}={os.environ[name]} " for name in CHANGING_BITS if name in os.environ]
    return "".join(variables) + "PYTHONPATH=../reference/src python tests/hashes/keep.py --write"


def compare(lockstep: bool) -> int:
    """Prints every entry that is not what it was; how many."""
    kept, bad = read(kind(lockstep)), 0
    if reason := why_not(kept, kind(lockstep)):
        sys.exit(reason)
    assert kept is not None
    for entry in kept["entries"]:
        now = hashes(entry)
        changed = [name for name in HASHES if now[name] != entry[name]]
        bad += bool(changed)
        print(f"{name_of(entry):<28} {'CHANGED: ' + ', '.join(changed) if changed else 'same'}", flush=True)
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help="write the list of this kind of processor")
    parser.add_argument("--lockstep", action="store_true", help="the list of runs in lock-step")
    given = parser.parse_args()
    print(f"undrift of {Path(ud.__file__).parent}, {kind()}, torch {torch.__version__}", file=sys.stderr)
    if given.write:
        print(f"written: {write(given.lockstep).relative_to(HERE.parents[1])}")
    elif bad := compare(given.lockstep):
        sys.exit(f"{bad} entries are not what they were")


if __name__ == "__main__":
    main()
