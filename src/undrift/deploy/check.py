"""`undrift deploy check`: what would go wrong, before anything is joined."""

from __future__ import annotations

import resource
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from undrift.core.errors import BadRequest
from undrift.deploy import spec as specs
from undrift.deploy.client import Node, done, opened, placed
from undrift.deploy.codec import pack_orders, pack_replies, unpack_replies
from undrift.deploy.site_store import SiteStore
from undrift.round.orders import Order
from undrift.store.server_state import ServerState


def site(app: Path, name: str, data: Path) -> dict[str, Any]:
    """A site before it joins: its data.py, its labels, one round as it would be, what would leave, time and memory."""
    spec = specs.read(app)
    node = Node(name, data.expanduser().resolve(), data.expanduser().resolve().parent / "undrift")
    began = time.perf_counter()
    setup = opened(spec, node)
    loading = time.perf_counter() - began
    federation, number = setup.federation, spec.number(name)
    counts = np.bincount(federation.y.numpy(), minlength=len(spec.labels))
    found: dict[str, Any] = {
        "site": f"{name}, number {number} of {len(spec.everybody)}" + (", only judges" if name in spec.evaluate_only else ""),
        "samples": f"{len(federation.y)} to train on, {len(federation.test_y)} to judge on, each {federation.shape}",
        "labels": ", ".join(f"{label}: {count}" for label, count in zip(spec.labels, counts, strict=True)),
        "method": setup.method.name,
        "model": f"{setup.model_name}, {setup.plan.layout.n:,} numbers",
    }  # fmt: skip
    site = placed(setup, len(spec.sites), max(1, len(federation.y)) * len(spec.sites), setup.runtime.initial)
    plan = replace(site.plan, rounds=max(site.plan.rounds, 2))
    messages: dict[str, dict[str, Any]] = {part.key: {} for part in plan.method.parts}
    server_state = site.initial.cpu(), site.model.integers()
    with tempfile.TemporaryDirectory() as place:
        site_store = SiteStore(Path(place), "check").make()
        began = time.perf_counter()
        if name in spec.sites:
            order = Order("train", 0, number, *server_state, first_messages(setup), evaluate_on=("own",))
            reply = done(site, setup, node, site_store, order)
            if reply.failure is not None:
                raise BadRequest(f"{name} could not do one round: {reply.failure.detail}")
        else:
            order = Order("personalize", 1, number, *server_state, messages, evaluate_on=("own",))
            reply = done(site, setup, node, site_store, order)
        training = time.perf_counter() - began
        down, up = pack_orders([order], plan), pack_replies([order], [reply], plan, name)
        unpack_replies(up, [order], plan, server_state[1], max(1, len(federation.y)), spec.norm)
        kept = sum(path.stat().st_size for path in Path(place).rglob("*") if path.is_file())
    unit = 1024 if sys.platform.startswith("linux") else 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    found |= {
        "one round": f"{training:.2f} s, and {loading:.2f} s to load the data, of the {spec.deadline:g} s allowed",
        "memory": f"{peak / 2**20:.0f} MB at most",
        "arrives": f"{down.bytes:,} bytes a round",
        "leaves": f"{up.bytes:,} bytes a round: " + ", ".join(f"{key} {size:,}" for key, size in up.sizes().items()),
        "kept at the site": f"{kept:,} bytes a version of its state, in {node.folder}; {free(node.folder)} are free",
    }  # fmt: skip
    if training + loading > spec.deadline:
        raise BadRequest(f"{name} needs {training + loading:.0f} s for a round; {spec.deadline:g} s are allowed")
    return {**found, "ready": "yes; nothing was sent"}


def first_messages(setup: Any) -> dict[str, Any]:
    """What the server would send in round 0, by part."""
    from undrift.round.server import ServerRound, first_state
    from undrift.store.states import States

    runtime, states = setup.runtime, States(None)

    def open_round(state: ServerState) -> ServerRound:
        return ServerRound(setup.plan, state, states, runtime.lent, runtime.proxy)

    server_round = open_round(first_state(setup.plan, runtime.initial.cpu(), runtime.model.integers(), open_round))
    return server_round.messages_for(server_round.broadcasts(), 0)


def free(folder: Path) -> str:
    place = next(path for path in (folder, *folder.parents) if path.exists())
    return f"{shutil.disk_usage(place).free / 2**30:.1f} GB"


def server(app: Path, port: int) -> dict[str, Any]:
    """The server before the SuperLink starts: the app, the keys, the port."""
    spec = specs.read(app)
    setup = spec.setup(specs.at_server(spec, [1] * len(spec.sites)))
    keys = app / "keys"
    for name in ("ca.crt", "server.crt", "server.key", *(f"{site}.pub" for site in spec.everybody)):
        if not (keys / name).is_file():
            raise BadRequest(f"there is no {keys / name}; `python make_keys.py` makes keys for trying it")
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise BadRequest(f"port {port} is in use; stop what listens there, or choose another with --port")
    return {
        "method": setup.method.name, "model": f"{setup.model_name}, {setup.plan.layout.n:,} numbers",
        "sites": ", ".join(spec.everybody), "keys": f"all in {keys}", "port": f"{port} is free", "ready": "yes",
    }  # fmt: skip
