"""Other operating systems, imitated: what macOS and Windows lack is taken away in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

import undrift as ud
from undrift.core import system
from undrift.core.errors import BadRequest
from undrift.engine import arena, spawn
from undrift.experiment.engines import choose_engine
from undrift.testing import small_network, tiny

# Windows has no fcntl, resource and the like, no /proc, passes no descriptors, and cannot open a folder. Its locks are
# those of msvcrt, here made from lockf.
WINDOWS = """
import builtins, importlib.abc, os, subprocess, sys, types
import torch, scipy.optimize, sklearn.datasets  # other packages know the system they are on

MISSING = ("fcntl", "resource", "grp", "pwd", "termios", "syslog")

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def lockf(file, mode, size, lockf=os.lockf, modes={1: os.F_LOCK, 2: os.F_TLOCK}):
    lockf(file, modes[mode], size)

sys.meta_path.insert(0, Missing())
for name in MISSING:
    sys.modules.pop(name, None)
sys.modules["msvcrt"] = types.SimpleNamespace(locking=lockf, LK_LOCK=1, LK_NBLCK=2)
for name in ("memfd_create", "pread", "pwrite", "sched_getaffinity", "fork", "getuid", "geteuid", "uname", "lockf"):
    delattr(os, name)
real_open, real_open_file = os.open, builtins.open

def os_open(path, flags, *more, **options):
    assert not str(path).startswith("/proc"), path
    if os.path.isdir(path):
        raise PermissionError(13, "a folder", str(path))
    return real_open(path, flags, *more, **options)

def open_file(path, *more, **options):
    assert not str(path).startswith("/proc"), path
    return real_open_file(path, *more, **options)

def popen(*_, **__):
    raise AssertionError("a process was started")

import shutil
shutil._use_fd_functions = False  # rmtree opens folders elsewhere
os.open, builtins.open, subprocess.Popen = os_open, open_file, popen
import undrift.core.system
undrift.core.system.NAME = "nt"
"""
CORE = """
import undrift as ud
from undrift.cli import command
federation = ud.federate("digits", "dirichlet(0.3)", 4)
settings = dict(rounds=2, epochs=1, workers=2)
first = ud.run("scaffold", federation, engine="inline", out="first", **settings)
assert ud.load("first").personal(1) is not None
print(first.accuracy, ud.resume("first", rounds=3).vector.double().sum().item())
ud.run("fedavg", federation, out="auto", **settings)
for wrong in (lambda: ud.run("fedavg", federation, engine="processes", out="spread", **settings), lambda: ud.resume("held")):
    try:
        wrong()
    except ValueError as error:
        print(error)
print(len(ud.compare(["fedavg", "fedprox"], federation, rounds=1, out="compared").rows))
assert command(["run", "--rounds", "2", "--clients", "4", "--engine", "inline", "--out", "typed", "--quiet"]) == 0
assert command(["show", "typed", "--json"]) == 0
"""


@pytest.mark.slow
def test_the_core_runs_inline_without_what_windows_lacks(tmp_path):
    federation = ud.federate("digits", "dirichlet(0.3)", 4)
    here = ud.run("scaffold", federation, engine="inline", out=tmp_path / "held", rounds=2, epochs=1)
    more = ud.resume(tmp_path / "held", rounds=3)
    held = os.open(tmp_path / "held" / "lock", os.O_RDWR)
    try:
        os.lockf(held, os.F_TLOCK, 1)
        command = [sys.executable, "-c", WINDOWS + CORE]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    finally:
        os.close(held)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[0] == f"{here.accuracy} {more.vector.double().sum().item()}"  # the same numbers as on Linux
    assert lines[1] == "worker processes need Linux or macOS; use --engine inline"
    assert lines[2] == "the run in held is in use by another process; wait for it or stop it"
    assert lines[3] == "2"
    assert '"accuracy"' in done.stdout
    assert not (tmp_path / "spread").exists()


def test_where_no_worker_can_be_started_auto_is_inline_and_processes_are_refused(monkeypatch):
    monkeypatch.setattr(system, "starts_workers", lambda: False)
    with pytest.raises(BadRequest, match="worker processes need Linux or macOS; use --engine inline"):
        spawn.start_workers(2)
    setup = ud.run("fedavg", tiny(), model=lambda: small_network(5, 3), rounds=1, out=False).setup
    assert choose_engine(setup, 2) == ("inline", "worker processes need Linux or macOS")


# ---- macOS: processes over mapped temporary files --------------------------------------------------------------------


@pytest.fixture
def portable(tmp_path, monkeypatch):
    """The way without memfd and /proc, with temporary files in a folder of the test's own."""
    monkeypatch.setenv("UNDRIFT_PORTABLE", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    arena.block_folder.cache_clear()
    yield tmp_path
    arena.block_folder.cache_clear()


def test_processes_over_temporary_files_give_inlines_bits_and_leave_no_file(portable):
    federation = tiny(clients=5)

    def network():
        return torch.nn.Sequential(torch.nn.Linear(5, 400), torch.nn.BatchNorm1d(400), torch.nn.Linear(400, 3))

    big = {"model": network, "rounds": 3, "epochs": 2, "batch": 8, "out": False}
    workers = spawn.start_workers(2)
    try:
        spread = ud.run("scaffold", federation, engine="processes", started=workers, **big)
        owners = {int(path.name.split("-")[2]) for path in portable.iterdir()}
        assert owners == {os.getpid(), *(worker.process.pid for worker in workers)}
    finally:
        spawn.stop_workers(workers)
    inline = ud.run("scaffold", federation, engine="inline", **big)
    assert torch.equal(inline.vector, spread.vector)
    assert all(path.name.startswith(f"undrift-blocks-{os.getpid()}-") for path in portable.iterdir())


def test_what_a_killed_process_left_is_removed_by_the_next(portable):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    left = portable / f"undrift-blocks-{process.pid}-x"
    left.mkdir()
    (left / "block").write_bytes(b"x")
    other = portable / "undrift-blocks-mine"  # no folder of ours
    other.mkdir()
    mine = arena.Block(4096)
    assert left.exists()  # its process is alive
    process.kill()
    process.wait()
    arena.block_folder.cache_clear()
    block = arena.Block(4096)
    assert not left.exists()
    assert other.exists()
    assert Path(mine.path).is_file()
    path = block.path
    del block
    assert not Path(path).exists()


def test_a_reference_by_file_is_read_where_it_was_written(portable):
    writer, reader = arena.Arena(), arena.MappedBlocks()
    tensor = torch.arange(5000.0)
    assert torch.equal(arena.unpack(arena.pack({"v": tensor}, writer), reader)["v"], tensor)
    assert isinstance(writer.place(tensor)[1], str)
