"""`undrift deploy node`: when a SuperNode ends, however it ends, its processes end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from undrift.core.errors import BadRequest
from undrift.deploy import node

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are adopted on Linux only")

# A stand-in for flower-supernode: it starts a process, which starts one in a session of its own that ignores SIGTERM.
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
MIDDLE = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', {STUBBORN!r}], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
open('pids', 'w').write(f'{{os.getppid()}} {{os.getpid()}} {{child.pid}}')
os.rename('pids', 'ready')
time.sleep(60)
"""
SUPERNODE = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {MIDDLE!r}]); time.sleep(60)"
WRAPPER = """
import sys
from undrift.deploy import node
node.GRACE = 0.3
sys.exit(node.run([sys.executable, '-c', sys.argv[1]]))
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(reached, seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(("whom", "sent", "code"), [
    ("supernode", signal.SIGKILL, 128 + signal.SIGKILL),
    ("command", signal.SIGTERM, 0),
])  # fmt: skip
def test_all_processes_end_with_the_supernode(whom, sent, code, tmp_path):
    process = subprocess.Popen([sys.executable, "-c", WRAPPER, SUPERNODE], cwd=tmp_path)
    try:
        assert until((tmp_path / "ready").exists)
        supernode, middle, stubborn = map(int, (tmp_path / "ready").read_text().split())
        os.kill(supernode if whom == "supernode" else process.pid, sent)
        assert process.wait(timeout=30) == code
        assert [pid for pid in (supernode, middle, stubborn) if alive(pid)] == []
    finally:
        process.kill()


def test_a_missing_file_is_named_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name, path=None: "/bin/true")
    (tmp_path / "data.py").touch()
    with pytest.raises(
        BadRequest, match=r"there is no file .*ca\.crt; give the certificate authority's file by its path"
    ):
        node.command("oslo", tmp_path / "data.py", "x:1", tmp_path / "ca.crt", tmp_path / "key")


def test_the_nodes_runtime_api_is_bound_to_loopback(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name, path=None: "/bin/true")
    for name in ("data.py", "ca.crt", "key"):
        (tmp_path / name).touch()
    args = node.command("oslo", tmp_path / "data.py", "x:1", tmp_path / "ca.crt", tmp_path / "key")
    assert args[args.index("--host") + 1] == "127.0.0.1"
    assert args[args.index("--node-config") + 1] == f'site="oslo" data="{tmp_path / "data.py"}"'
