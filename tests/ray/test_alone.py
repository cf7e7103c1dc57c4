"""A cluster started for one run listens on this machine only and ends with the run, however that ends."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray

COMMAND = [sys.executable, "-c", "from undrift.cli import main; main()"]
ARGUMENTS = ["run", "--method", "scaffold", "--model", "mlp(100, norm=batch, dropout=0.2)", "--rounds", "60",
         "--evaluate-every", "10", "--json"]  # fmt: skip
# Ray's own helpers: they try to reach a dead cluster for a minute, then end.
AGENTS = (b"ray::DashboardAgent", b"ray::RuntimeEnvAgent")
ENVIRONMENT = {"UNDRIFT_CHECKPOINT_EVERY": "1"}


def begun(folder: Path, *more: str) -> subprocess.Popen[str]:
    """A run in a session of its own that has done five rounds."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    process = subprocess.Popen([*COMMAND, *ARGUMENTS, "--out", str(folder), *more], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=clean | ENVIRONMENT, start_new_session=True)  # fmt: skip
    until = time.monotonic() + 60
    while process.poll() is None and rounds(folder) < 5 and time.monotonic() < until:
        time.sleep(0.05)
    assert process.poll() is None, process.communicate()
    return process


def rounds(folder: Path) -> int:
    try:
        with sqlite3.connect(f"file:{folder / 'run.sqlite'}?mode=ro", uri=True) as db:
            return db.execute("SELECT COUNT(*) FROM rounds").fetchone()[0]
    except sqlite3.Error:
        return 0


def family(parent: int) -> set[int]:
    """A process and all its descendants."""
    found = {parent}
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        found |= family(int(pid))
    return found


def left(pids: set[int], seconds: float = 20.0) -> set[int]:
    """The processes that are still alive after so many seconds."""
    until = time.monotonic() + seconds
    while (there := {pid for pid in pids if alive(pid)}) and time.monotonic() < until:
        time.sleep(0.1)
    return there


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def listening(pids: set[int]) -> set[str]:
    """The addresses at which these processes listen, in the kernel's hexadecimal."""
    sockets = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(link)
            if target.startswith("socket:["):
                sockets.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and columns[9] in sockets:
                found.add(columns[1].partition(":")[0])
    return found


@pytest.fixture(scope="session")
def stay_a_minute():
    """Processes that may outlive their test by about a minute. They are checked after all tests."""
    pids, began = set(), time.monotonic()
    yield pids
    assert not left(pids, max(20.0, began + 120 - time.monotonic()))


def test_a_run_killed_on_ray_and_resumed_inline_equals_one_that_was_not(tmp_path, stay_a_minute):
    killed = begun(tmp_path / "killed", "--engine", "ray", "--workers", "2")
    pids = family(killed.pid)
    loopback = {
        "0100007F",
        "0000000000000000FFFF00000100007F",
        "00000000000000000000000001000000",
    }  # 127.0.0.1, and as IPv6
    assert listening(pids) <= loopback
    assert len(pids) > 5
    agents = {pid for pid in pids if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(AGENTS)}
    killed.kill()
    _, output = killed.communicate()
    assert "engine ray: a cluster of its own on this machine, 1 node, 2 CPUs, 0 GPUs; 2 actors" in output
    assert not left(pids - agents)
    stay_a_minute.update(agents)
    assert 5 <= rounds(tmp_path / "killed") < 60
    resumed = subprocess.run([*COMMAND, "resume", str(tmp_path / "killed"), "--engine", "inline", "--json"],
                             capture_output=True, text=True, check=True)  # fmt: skip
    calm = subprocess.run([*COMMAND, *ARGUMENTS, "--engine", "inline", "--out", str(tmp_path / "calm")],
                          capture_output=True, text=True, check=True)  # fmt: skip
    first, second = json.loads(calm.stdout), json.loads(resumed.stdout)
    assert first["model_sha256"] == second["model_sha256"]
    assert first["stages"] == second["stages"]


def test_ctrl_c_in_a_terminal_ends_the_run_and_its_cluster(tmp_path):
    process = begun(tmp_path / "run", "--engine", "ray", "--workers", "1")
    pids = family(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert not left(pids)
