"""`undrift deploy node`: runs a site's SuperNode, and takes its processes along when it ends.

Flower's SuperNode starts a process that starts a process per message. They look for their parent five times a second
and stop when it is gone, but an unreaped parent is not gone for them, and what they started themselves (a data loader's
workers) they leave behind. Here the command adopts all of them (Linux: PR_SET_CHILD_SUBREAPER), and ends what is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from undrift.core.errors import BadRequest

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE = 5.0  # seconds that processes have to end by themselves


def command(site: str, data: Path, address: str, ca: Path, key: Path, folder: Path | None = None) -> list[str]:
    """The call of flower-supernode. Its Runtime API, which asks for no login, is bound to loopback."""
    program = shutil.which("flower-supernode") or shutil.which(
        "flower-supernode", path=str(Path(sys.executable).parent)
    )
    if program is None:
        raise BadRequest("there is no program flower-supernode; install it with pip install 'undrift[flower]'")
    for path, what in ((data, "the site's data.py"), (ca, "the certificate authority's file"), (key, "the site's key")):
        if not path.is_file():
            raise BadRequest(f"there is no file {path}; give {what} by its path")
        if '"' in str(path.resolve()):
            raise BadRequest(f'the path {path} contains a ", which a node configuration cannot hold; rename it')
    config = {"site": site, "data": data.resolve(), **({"folder": folder.resolve()} if folder else {})}
    return [
        program, "--superlink", address, "--root-certificates", str(ca), "--auth-supernode-private-key", str(key),
        "--host", "127.0.0.1", "--port", str(free_port()),
        "--node-config", " ".join(f'{name}="{value}"' for name, value in config.items()),
    ]  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(args: Sequence[str]) -> int:
    """Run a program until it ends, however it ends, then end all processes that it started. Returns its exit code."""
    adopt_orphans()
    environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    process = subprocess.Popen(args, env=environment, start_new_session=True, preexec_fn=end_with_parent)
    stopped: list[int] = []

    def forward(sent: int, _frame: object) -> None:
        stopped.append(sent)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL if len(stopped) > 1 else sent)  # asked twice: at once

    before = {sent: signal.signal(sent, forward) for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        code = process.wait()
    finally:
        end_descendants()
        for sent, handler in before.items():
            signal.signal(sent, handler)
    return 0 if stopped else code if code >= 0 else 128 - code


def prctl(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that they can be found."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """In the child: if this command is killed (SIGKILL), the SuperNode is asked to end."""
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def end_descendants() -> None:
    """Ask all descendants to end, and kill those that have not ended after the grace time."""
    until, sent = time.monotonic() + GRACE, signal.SIGTERM
    asked: set[int] = set()
    while pids := descendants(os.getpid()):
        if time.monotonic() > until:
            sent, asked = signal.SIGKILL, set()
        for pid in set(pids) - asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sent)
        asked |= set(pids)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)


def descendants(parent: int) -> list[int]:
    """Ids of all processes below one, from /proc (empty where there is none)."""
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            for pid in map(int, children.read_text().split()):
                pids += [pid, *descendants(pid)]
    return pids
