"""`undrift deploy check`: finds problems at a site or at the server before the deployment starts."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import undrift
from undrift.core import system
from undrift.core.errors import BadRequest
from undrift.core.files import read_toml
from undrift.deploy import app_hash
from undrift.deploy import spec as specs
from undrift.deploy.claims import needs_effective_steps
from undrift.deploy.client import Node, execute_order, site_runtime, site_setup
from undrift.deploy.envelope import Envelope
from undrift.deploy.packing import pack_orders, pack_replies
from undrift.deploy.policy import Policy
from undrift.deploy.site_store import SiteStore
from undrift.deploy.spec import Spec
from undrift.deploy.unpacking import unpack_replies
from undrift.experiment.setup import Setup
from undrift.round.orders import Order
from undrift.store.server_state import ServerState


def site(app: Path, name: str, data: Path) -> dict[str, Any]:
    """Check a site before it joins: load its data.py, run one round without sending it, measure time, memory, bytes."""
    spec = specs.read(app)
    data = data.expanduser().resolve()
    node = Node.from_config({"site": name, "data": data})
    policy = Policy.read(node.policy)
    began = time.perf_counter()
    setup = site_setup(spec, node)
    policy.check_method(setup)
    loading = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        site_store = SiteStore(Path(folder), "check").create()
        working, down, up = one_round(spec, setup, node, site_store)
        stored = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    if working + loading > spec.deadline:
        raise BadRequest(
            f"{name} needs {working + loading:.0f} s for a round and {spec.deadline:g} s are allowed; raise deadline"
        )
    federation = setup.federation
    labels = federation.task.labels(federation.y)
    counts: Any = [] if labels is None else np.bincount(labels.numpy(), minlength=len(spec.labels))
    role = ", only evaluates" if name in spec.evaluate_only else ""
    return {
        "site": f"{name}, number {spec.number(name)} of {len(spec.all_sites)}{role}",
        "samples": f"{len(federation.y)} training and {len(federation.test_y)} test samples, each {federation.shape}",
        "labels": ", ".join(f"{label}: {count}" for label, count in zip(spec.labels, counts)) or federation.task.name,
        "undrift": version(app),
        "method": setup.method.name,
        "model": f"{setup.model_name}, {setup.plan.layout.n:,} numbers",
        "one round": f"{working:.2f} s, and {loading:.2f} s to load the data, of the {spec.deadline:g} s allowed",
        "memory": peak_memory(),
        "arrives": f"{down.bytes:,} bytes a round",
        "leaves": f"{up.bytes:,} bytes a round: " + ", ".join(f"{key} {size:,}" for key, size in up.sizes().items()),
        "policy": f"{node.policy}: {policy}"
        if node.policy.exists()
        else "none: the defaults apply; of the metrics only the headline and the loss leave",
        "kept at the site": f"{stored:,} bytes per state version, in {node.folder}; {free(node.folder)} are free",
        "ready": "yes; nothing was sent",
    }


def version(app: Path) -> str:
    """This version beside the app's: the handshake refuses a site whose version is not the server's."""
    written_by = read_toml(app / "run.toml").get("about", {}).get("undrift")
    if written_by == undrift.__version__:
        return undrift.__version__
    return f"{undrift.__version__}; the app was written by {written_by}: ask the operator which one the server has now"


def one_round(spec: Spec, setup: Setup, node: Node, site_store: SiteStore) -> tuple[float, Envelope, Envelope]:
    """One round at this site: its seconds, the envelope that would arrive and the one that would leave."""
    number, samples = spec.number(node.site), max(1, len(setup.federation.y))
    runtime = site_runtime(setup, len(spec.sites), samples * len(spec.sites), setup.runtime.initial)
    plan = replace(runtime.plan, rounds=max(runtime.plan.rounds, 2))
    vector, integers = runtime.initial.cpu(), runtime.model.integers()
    began = time.perf_counter()
    if node.site in spec.sites:
        order = Order("train", 0, number, vector, integers, first_messages(setup), evaluate_on=("own",))
        reply = execute_order(runtime, setup, node, site_store, order)
        if reply.failure is not None:
            raise BadRequest(f"{node.site} failed in its first round: {reply.failure.detail}")
    else:
        messages: dict[str, dict[str, Any]] = {part.key: {} for part in plan.method.parts}
        order = Order("personalize", 1, number, vector, integers, messages, evaluate_on=("own",))
        reply = execute_order(runtime, setup, node, site_store, order)
    seconds = time.perf_counter() - began
    reply = Policy.read(node.policy).apply(reply, plan, needs_effective_steps(plan))
    down, up = pack_orders([order], plan), pack_replies([order], [reply], plan, node.site)
    unpack_replies(up, [order], plan, integers, Policy.read(node.policy).told_size(samples), spec.norm)
    return seconds, down, up


def first_messages(setup: Setup) -> dict[str, Any]:
    """The server's messages of round 0, by part."""
    from undrift.round.server import ServerRound, first_state
    from undrift.store.states import States

    runtime, states = setup.runtime, States(None)

    def open_round(state: ServerState) -> ServerRound:
        return ServerRound(setup.plan, state, states, runtime.lent, runtime.proxy)

    server_round = open_round(first_state(setup.plan, runtime.initial.cpu(), runtime.model.integers(), open_round))
    return server_round.messages_for(server_round.broadcasts(), 0)


def peak_memory() -> str:
    peak = system.peak_memory()
    return "unknown on this system" if peak is None else f"{peak / 2**20:.0f} MB at most"


def free(folder: Path) -> str:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return f"{shutil.disk_usage(existing).free / 2**30:.1f} GB"


def proxy_state(app: Path) -> str:
    """What nginx says about the proxy's configuration."""
    config = app / "proxy" / "nginx.conf"
    if not config.is_file():
        raise BadRequest(f"there is no {config}: sites would reach Control; `undrift deploy init` writes it")
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
    if program is None:
        return f"nginx is not installed here; it needs {config}"
    args = [program, "-t", "-q", "-p", str(config.parent.resolve()), "-c", "nginx.conf", "-e", "stderr"]
    tried = subprocess.run(args, capture_output=True, text=True, timeout=60)
    if tried.returncode:
        raise BadRequest(f"nginx refuses {config}: {' '.join(tried.stderr.split())}")
    return f"nginx accepts {config}"


def app_state(app: Path) -> str:
    """The app's SHA-256 now, and whether it is the published one."""
    digest, published = app_hash.of(app), app_hash.published(app)
    if published == digest:
        return f"SHA-256 {digest}"
    return f"SHA-256 {digest}, which is not the one in {app / app_hash.FILE}: publish it to the sites"


def server(app: Path, host: str, port: int) -> dict[str, Any]:
    """Check the server before the SuperLink starts: the app, the keys, the port."""
    spec = specs.read(app)
    setup = spec.setup(specs.server_federation(spec, [1] * len(spec.sites)))
    keys = app / "keys"
    for name in ("ca.crt", "server.crt", "server.key", *(f"{site}.pub" for site in spec.all_sites)):
        if not (keys / name).is_file():
            raise BadRequest(f"there is no {keys / name}; add your keys, or make trial keys with `python make_keys.py`")
    if listening(host, port):
        raise BadRequest(
            f"port {port} is in use; stop the program that listens there, or choose another with `deploy init "
            "--superlink` (--port checks another once)"
        )
    return {
        "method": setup.method.name,
        "model": f"{setup.model_name}, {setup.plan.layout.n:,} numbers",
        "sites": ", ".join(spec.all_sites),
        "keys": f"all in {keys}",
        "proxy": proxy_state(app),
        "app": app_state(app),
        "names": "any node may speak for any site" if spec.unnamed_nodes else "only registered names speak for a site",
        "port": f"{port} is free",
        "ready": "yes",
    }


def listening(host: str, port: int) -> bool:
    """Whether a program on this machine listens there."""
    try:
        with socket.create_connection((host, port), timeout=5):
            return True
    except OSError:
        return False
