"""Join a Ray cluster, or start one for this run that listens on this machine only."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from undrift.core.errors import BadRequest
from undrift.engine.spawn import cores

ANSWER = 4.0  # seconds a cluster has to answer
HOME = "127.0.0.1"
ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # "0": Ray stays on the loopback address, as it does on macOS
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # of gRPC: preface and settings


def connect(
    address: str | None, workers: int | None, say: Callable[[str], None] | None = None
) -> tuple[Any, str, bool]:
    """(the module ray, a description of the cluster, whether this run must leave it at the end)."""
    try:
        import ray
    except ImportError:
        raise BadRequest("the ray engine needs Ray, which is not installed: pip install 'undrift[ray]'") from None
    if ray.is_initialized():
        return ray, "in the cluster this process had joined", False
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        if say is not None:
            say("starting a Ray cluster on this machine, which takes some ten seconds")
        start(ray, num_cpus=workers or cores(), **quiet)
        return ray, "a cluster of its own on this machine", True
    reach(ray, address)
    try:
        with our_signals():
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError) as error:
        if "ersion mismatch" not in str(error):
            raise BadRequest(f"the cluster at {address} cannot be joined: {one_line(error)}") from None
        raise BadRequest(f"the cluster at {address} has another Ray or Python: {one_line(error)}") from None
    return ray, f"the cluster at {address}", True


def start(ray: Any, **settings: Any) -> None:
    """Start a cluster that ends with this process."""
    logging.getLogger("ray").setLevel(logging.ERROR)  # Ray logs before it reads its settings
    with our_signals(), environment(**{"RAY_USAGE_STATS_ENABLED": "0", ONE_MACHINE: "0"}):
        constants = ray._private.ray_constants  # Ray reads the environment at import and keeps it here
        before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
        try:
            ray.init(address="local", _node_ip_address=HOME, include_dashboard=False, **settings)
        finally:
            constants.ENABLE_RAY_CLUSTER = before
    if any(node["NodeManagerAddress"] != HOME for node in ray.nodes()):
        ray.shutdown()
        raise BadRequest(
            f"Ray {ray.__version__} would listen to the network; start a cluster of your own and give its --ray-address"
        )


def reach(ray: Any, address: str) -> None:
    """Refuse an address at which no gRPC server answers. Ray itself would try for minutes."""
    if address.startswith("ray://"):
        raise BadRequest(
            f"{address} is a Ray Client's address, which copies every vector through a proxy; start the run on a "
            "node of the cluster and give HOST:PORT"
        )
    try:
        resolved = ray._private.services.canonicalize_bootstrap_address(address)
        host, _, port = (resolved or "").rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER) as pipe:
            pipe.settimeout(ANSWER)
            pipe.sendall(GREETING)
            if not pipe.recv(1) and os.environ.get("RAY_USE_TLS", "0") != "1":
                raise ConnectionError
    except ValueError:
        raise BadRequest(f"a Ray address is HOST:PORT, auto or local, not {address!r}") from None
    except OSError:
        raise BadRequest(
            f"no Ray cluster answers at {address}; start one with `ray start --head`, or leave out the address"
        ) from None


@contextlib.contextmanager
def our_signals() -> Iterator[None]:
    """Restore our SIGTERM handler, which Ray replaces: a run ends in its own way."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def differing(where: str, theirs: dict[str, str], ours: dict[str, str]) -> str:
    """Why a node cannot take part: its versions differ from the driver's. Empty if they do not."""
    for name, version in ours.items():
        if theirs.get(name) != version:
            return (
                f"{where} has {name} {theirs.get(name)} and the driver {version}; install the same version everywhere"
            )
    return ""


def missing(where: str, text: str) -> str:
    """Why a node cannot take part: it failed to import a module. Empty if the error is another."""
    match = re.search(r"No module named '([^']+)'", text)
    return f"{where} cannot import {match[1]!r}, which this run needs; install it there" if match else ""
