"""Real federations on loopback: a SuperLink with TLS and node authentication on 127.0.0.1, nginx in front of it on
127.0.0.2 as `deploy init` configures it, SuperNodes with their own keys and data that connect to nginx.

A round costs seconds of polling and process start, so one test covers several events of one federation.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undrift as ud
from undrift.deploy.init import Places, init
from undrift.store.record import rows_of

BIN = Path(sys.executable).parent
SITES = ("berlin", "oslo", "turin")
SETTINGS = {"epochs": 1, "batch": 16, "model": "mlp(16)", "evaluate_every": 1}
DATA = """
import numpy as np
from pathlib import Path
LABELS = [str(c) for c in range(10)]
def load():
    file = np.load(Path(__file__).with_name("data.npz"))
    return file["x"], file["y"]
"""


def slices(data: str = "digits", clients: int = 3, most: int = 200) -> list[tuple[np.ndarray, np.ndarray]]:
    federation = ud.federate(data, "dirichlet(0.5)", clients=clients, seed=3)
    return [(x[:most, :, :, 0].numpy(), y[:most].numpy()) for x, y in map(federation.train, range(clients))]


PATIENCE = float(os.environ.get("UNDRIFT_TEST_PATIENCE", "1"))  # above 1 on a machine that is busy with other work
OPERATOR, SITE_SIDE = "127.0.0.1", "127.0.0.2"  # two addresses of loopback's range


def free_port(host: str = OPERATOR) -> int:
    """A port without a listener. It is below those that the system gives to connections: between this call and the
    listener's start another process would get one of them."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, random.randrange(10_000, 32_768)))
            return probe.getsockname()[1]


class Loopback:
    """One SuperLink, some SuperNodes, and runs one after another. It stops every process that it starts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.app = folder, folder / "app"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.port, self.address = free_port(), f"{SITE_SIDE}:{free_port(SITE_SIDE)}"
        self.flower_home = folder / "flower"
        self.flower_home.mkdir()
        self.env = {
            **os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "FLWR_HOME": str(self.flower_home),
            "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.4", "UNDRIFT_CHECKPOINT_EVERY": "1",
        }  # fmt: skip

    # ---- setting up ------------------------------------------------------------------------------------------

    def make(
        self, method: str = "scaffold+fliu", sites: tuple[str, ...] = SITES, data: str = "digits", **more: Any
    ) -> Loopback:
        deploy_options = {"sites": list(sites), "labels": [str(c) for c in range(10)]}
        deploy_options |= {
            name: more.pop(name) for name in ("evaluate_only", "quorum", "deadline", "wait") if name in more
        }
        deploy_options = {"wait": 60.0, "deadline": 60.0, **deploy_options}
        deploy_options |= {name: PATIENCE * deploy_options[name] for name in ("wait", "deadline")}
        own = slices(data, len(sites) + len(deploy_options.get("evaluate_only", [])))
        deploy_options["shape"] = [1, *own[0][0].shape[1:]]
        init(
            self.app,
            {**SETTINGS, "method": method, **more},
            deploy_options,
            places=Places(self.address, f"{OPERATOR}:{self.port}"),
        )
        from undrift.deploy import keys  # needs the flower extra; the quick tests collect this file without it

        keys.make(self.app, [SITE_SIDE])
        for site, (x, y) in zip([*sites, *deploy_options.get("evaluate_only", [])], own, strict=True):
            (self.folder / site).mkdir()
            np.savez(self.folder / site / "data.npz", x=x, y=y)
            self.data_py(site, DATA)
        return self

    def data_py(self, site: str, text: str) -> None:
        (self.folder / site / "data.py").write_text(text)

    # ---- processes -------------------------------------------------------------------------------------------

    def start(self, name: str, *args: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
        program = str(BIN / args[0]) if (BIN / args[0]).exists() else args[0]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [program, *args[1:]], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env or self.env,
                cwd=cwd or self.folder, start_new_session=True, preexec_fn=die_with_us,
            )  # fmt: skip

    def ended(self, name: str) -> bool:
        return self.processes[name].poll() is not None

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str, sent: int = signal.SIGKILL) -> None:
        """Kill a process of ours. SIGKILL also goes to its descendants (Flower's start sessions of their own)."""
        process = self.processes.pop(name)
        for pid in family(process.pid) if sent == signal.SIGKILL else [process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sent)
        process.wait(timeout=20)

    def stop(self) -> None:
        for name in list(self.processes):
            self.kill(name)

    def superlink(self) -> None:
        keys = self.app / "keys"
        self.configure(self.flower_home, f"{OPERATOR}:{self.port}")
        if "nginx" not in self.processes:
            self.start(
                "nginx",
                "nginx",
                "-p",
                str(self.app / "proxy"),
                *["-c", "nginx.conf", "-e", "stderr", "-g"],
                "daemon off;",
            )
        self.start(
            "superlink", "flower-superlink", "--host", "127.0.0.1", "--port", str(self.port),
            "--ssl-ca-certfile", str(keys / "ca.crt"), "--ssl-certfile", str(keys / "server.crt"),
            "--ssl-keyfile", str(keys / "server.key"), "--enable-supernode-auth",
            "--database", str(self.folder / "superlink.db"), "--disable-runtime-dependency-installation",
        )  # fmt: skip
        self.until(lambda: connects(self.port), "the SuperLink to listen", 60)

    def configure(self, flower_home: Path, address: str) -> None:
        """Which address `flwr` talks to."""
        flower_home.mkdir(exist_ok=True)
        ca = self.app / "keys" / "ca.crt"
        (flower_home / "config.toml").write_text(
            f'[superlink.undrift]\naddress = "{address}"\nroot-certificates = "{ca}"\n'
        )

    def register(self, *sites: str) -> None:
        """Register the sites' keys at the SuperLink, in parallel: each call of Flower's command line takes seconds."""
        keys = [self.app / "keys" / f"{site}.pub" for site in sites]
        commands = [
            [str(BIN / "flwr"), "supernode", "register", str(key), "undrift", "--name", key.stem] for key in keys
        ]
        started = [
            subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.env)
            for args in commands
        ]
        for process in started:
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0, output

    def node(self, site: str) -> None:
        config = {"site": site, "data": str(self.folder / site / "data.py")}
        self.start(
            site, "flower-supernode", "--superlink", self.address, "--root-certificates",
            str(self.app / "keys" / "ca.crt"), "--auth-supernode-private-key", str(self.app / "keys" / site),
            "--host", "127.0.0.1", "--port", str(free_port()),
            "--node-config", " ".join(f'{name}="{value}"' for name, value in config.items()),
        )  # fmt: skip

    def nodes(self, *sites: str) -> None:
        """Start the sites' nodes and wait until all are connected."""
        for site in sites:
            self.node(site)
        self.until(lambda: all("SuperNode ID" in self.log(site) for site in sites), f"the nodes of {sites}")

    def run(self, out: str = "run", **config: Any) -> None:
        """Start a run. `self.log("run")` is the operator's output."""
        values = {"out": str(self.folder / out), **config}
        text = " ".join(f'{k}="{v}"' if isinstance(v, str) else f"{k}={v}" for k, v in values.items())
        self.start(out, "flwr", "run", str(self.app), "undrift", "--stream", "-c", text)

    def processes_of(self, name: str, program: str) -> list[int]:
        """Ids of the processes that run a program, among a process of ours and its descendants."""
        pids = []
        for pid in family(self.processes[name].pid):
            with contextlib.suppress(OSError):
                args = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
                if any(arg.endswith(program) for arg in args[:2]):
                    pids.append(pid)
        return pids

    def family(self, name: str) -> list[int]:
        return family(self.processes[name].pid)

    def free_port(self) -> int:
        return free_port()

    def listens(self, port: str) -> bool:
        return connects(int(port))

    # ---- waiting and reading ---------------------------------------------------------------------------------

    def until(self, reached: Callable[[], Any], what: str, seconds: float = 120) -> None:
        seconds *= PATIENCE
        end = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > end:
                tails = "\n".join(
                    f"--- {p.name}\n{p.read_text(errors='replace')[-2500:]}" for p in self.folder.glob("*.log")
                )
                raise AssertionError(f"waited {seconds} s for {what}\n{tails}")
            time.sleep(0.2)

    def rounds(self, out: str = "run") -> int:
        with contextlib.suppress(Exception):
            return rows_of(self.folder / out, "SELECT COUNT(*) FROM rounds")[0][0]
        return 0

    def until_round(self, number: int, out: str = "run", seconds: float = 120) -> None:
        self.until(lambda: self.rounds(out) >= number, f"round {number} of {out}", seconds)

    def until_event(self, kind: str, sentence: str, out: str = "run", seconds: float = 120) -> None:
        def recorded() -> bool:
            with contextlib.suppress(Exception):
                return any(found == kind and sentence in detail for _, _, found, detail in self.events(out))
            return False

        self.until(recorded, f"the event {kind}: {sentence}", seconds)

    def until_all_reply(self, sites: Sequence[str], out: str = "run") -> None:
        """Wait until each of the sites has replied once more."""
        before = {site: len(self.replies(site, out)) for site in sites}
        self.until(
            lambda: all(len(self.replies(site, out)) > before[site] for site in sites), "a reply from every site"
        )

    def until_finished(self, out: str = "run", seconds: float = 200) -> None:
        self.until(lambda: (self.folder / out / "model.safetensors").exists(), f"the end of {out}", seconds)
        self.until(lambda: "rounds done; saved in" in self.log(out), f"the last line of {out}'s log", 30)
        self.kill(out)

    def events(self, out: str = "run") -> list[tuple[Any, ...]]:
        return rows_of(self.folder / out, "SELECT round, client, kind, detail FROM events ORDER BY rowid")

    def site_folder(self, site: str, out: str = "run") -> Path:
        run = json.loads((self.folder / out / "roll.json").read_text())["run"]
        return self.folder / site / "undrift" / run

    def replies(self, site: str, out: str = "run") -> list[dict[str, Any]]:
        """The replies in the site's own log of what left it."""
        return [line for line in self.left(site, out) if line["kind"] == "replies"]

    def left(self, site: str, out: str = "run") -> list[dict[str, Any]]:
        try:
            lines = (self.site_folder(site, out) / "left.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def bytes_sent(self, site: str, out: str = "run") -> int:
        return sum(line["bytes"] for line in self.left(site, out))

    def bytes_received(self, site: str, out: str = "run") -> int:
        """The site's bytes as the server counted them."""
        lines = (self.folder / out / "border.jsonl").read_text().splitlines()
        return sum(line["bytes"] for line in map(json.loads, lines) if line["site"] == site and line["way"] == "up")


def family(parent: int) -> list[int]:
    """A process and all its descendants."""
    pids = [parent]
    with contextlib.suppress(OSError):
        for children in Path(f"/proc/{parent}/task").glob("*/children"):  # one file per thread of the process
            for pid in children.read_text().split():
                pids += family(int(pid))
    return pids


def die_with_us() -> None:
    """Make the kernel kill this process when the test process ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def loopback(tmp_path):
    federation = Loopback(tmp_path)
    try:
        yield federation
    finally:
        federation.stop()


@pytest.fixture
def simulate():
    """A simulation of the same clients, with a deployment's cap on weights."""

    def run(
        method: str = "scaffold+fliu", data: str = "digits", clients: int = 3, only: int | None = None, **more: Any
    ) -> Any:
        own = slices(data, clients)
        federation = ud.Federation.from_clients(own[: only or clients], labels=[str(c) for c in range(10)])
        return ud.run(method, federation, **{**SETTINGS, "selection": "all", "weight_cap": 0.5, "out": False, **more})

    return run
