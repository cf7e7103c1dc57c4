"""Start the server of the live page, say where it is, and end it with Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest, RunFailed
from undrift.live.guard import is_loopback

PORT = 8420
Say = Callable[[str], None]


def serve(folders: Sequence[Path], host: str, port: int | None, token: bool, browser: bool, say: Say) -> None:
    """Serve until Ctrl-C. `port=None`: 8420, or a free one if that is taken; 0: a free one."""
    import uvicorn

    from undrift.live.app import Live, application
    from undrift.live.guard import Guard
    from undrift.live.index import Index

    if not is_loopback(host) and not token:
        raise BadRequest(
            f"--host {host} shows the runs to other machines; add --token, which makes a secret address and prints it"
        )
    bound = listening(host, port)
    secret = secrets.token_urlsafe(18) if token else None
    index = Index(folders)
    index.poll()
    live = Live(index, title_of(folders))
    guard = Guard(application(live), host, bound.getsockname()[1], secret)
    config = uvicorn.Config(
        guard, log_level="critical", access_log=False, http="h11", ws="none", loop="asyncio", lifespan="off", server_header=False
    )  # fmt: skip
    announce(host, bound.getsockname()[1], secret, browser, say)
    try:
        asyncio.run(until_stopped(uvicorn.Server(config), live, bound))
    finally:
        live.labels.stop()


async def until_stopped(server: Any, live: Any, bound: socket.socket) -> None:
    """Serve until a signal comes, or until the folders cannot be read. Open pages get up to a second for a last update."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # Windows; not the main thread
            loop.add_signal_handler(number, stop.set)
    server.capture_signals = contextlib.nullcontext  # ours are set above
    looking = asyncio.create_task(live.look())
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([serving, stopped, looking], return_when=asyncio.FIRST_COMPLETED)
    failed = looking.exception() if looking.done() else None
    for task in (looking, stopped):
        task.cancel()
    server.should_exit = True
    with contextlib.suppress(Exception):
        await asyncio.wait_for(live.stop(), 1.0)
    await asyncio.wait({serving}, timeout=1.0)
    server.force_exit = True
    with contextlib.suppress(asyncio.TimeoutError, asyncio.CancelledError):
        await asyncio.wait_for(serving, 1.0)
    live.worker.shutdown(wait=False, cancel_futures=True)
    if failed is not None:
        raise RunFailed(f"the folders cannot be read any more: {failed}") from failed


def listening(host: str, port: int | None) -> socket.socket:
    """A socket of this host and port. Without a port the usual one, or any free one if that is taken."""
    try:
        place = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError:
        raise BadRequest(
            f"--host {host} is not a name or an address of this machine; use 127.0.0.1, or 0.0.0.0 for all"
        ) from None
    for number in [PORT, 0] if port is None else [port]:
        made = socket.socket(place[0], socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, number))
            made.listen(64)
            return made
        except OSError as error:
            made.close()
            if number == PORT and port is None:
                continue
            raise BadRequest(
                f"port {number} of {host} cannot be used ({error.strerror or error}); choose another --port, or 0 for any"
            ) from None
    raise AssertionError


def announce(host: str, port: int, token: str | None, browser: bool, say: Say) -> None:
    """Print the address, and open it where a person sits in front of a browser."""
    shown = (
        "127.0.0.1"
        if host in ("localhost", "127.0.0.1")
        else socket.gethostname()
        if host in ("0.0.0.0", "::")
        else host
    )
    if ":" in shown:
        shown = f"[{shown}]"
    secret = f"/?token={token}" if token else "/"
    address = f"http://{shown}:{port}{secret}"
    say(f"watching at {address}  (Ctrl-C ends it)")
    if os.environ.get("SSH_CONNECTION") and is_loopback(host):
        there = f"{os.environ.get('USER', 'you')}@{os.environ['SSH_CONNECTION'].split()[2]}"
        say(f"from your own machine: ssh -N -L {port}:127.0.0.1:{port} {there}, then open that address there")
    elif browser and has_display():
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(address)


def has_display() -> bool:
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def title_of(folders: Sequence[Path]) -> str:
    return f"Runs in {', '.join(folder.name or folder.resolve().name for folder in folders)}"
