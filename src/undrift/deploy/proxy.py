"""The proxy between the sites and the SuperLink, and the question whether it keeps its door closed.

Flower 1.41 serves its Fleet, Control and Runtime APIs on one address, as protobuf over HTTP under `/v1/fleet/`,
`/v1/control/` and `/v1/runtime/`, and cannot bind them separately. Control is open to everybody unless OIDC is
configured: who reaches it can run code at every site. So the SuperLink listens on loopback, and nginx passes on
only `/v1/fleet/`, where Flower checks the node's key in every call.
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import re
import ssl
from pathlib import Path
from typing import Any

from undrift.core.errors import BadRequest
from undrift.core.words import shown

SUPERLINK = "127.0.0.1:9092"  # where the SuperLink listens: the operator's side
ADDRESS = "127.0.0.1:9443"  # where the proxy listens: the sites' side, in a trial on one machine
APIS = {
    "Control": "/v1/control/list-runs",
    "Runtime": "/v1/runtime/pull-task-input",
    "Fleet": "/v1/fleet/pull-messages",
}
CLOSED = (403, 404)  # the proxy's answer, and that of a server that knows no such path
SECONDS = 10.0


def host_and_port(address: str) -> tuple[str, int]:
    """The two halves of HOST:PORT; an IPv6 address stands in brackets."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not port.isascii() or not 0 < int(port) < 65536:
        raise BadRequest(f"an address is HOST:PORT, as in fleet.example.org:9443, not {shown(address)}; give both")
    host = host.removeprefix("[").removesuffix("]")
    if not all(c.isalnum() or c in "-.:" for c in host):
        raise BadRequest(f"an address is HOST:PORT, as in fleet.example.org:9443, not {shown(address)}; give both")
    return host, int(port)


def superlink_of(app: Path) -> tuple[str, int]:
    """Where an app's SuperLink listens: the shell's SUPERLINK, else what `deploy init` wrote into environment.sh."""
    file = app / "environment.sh"
    written = re.search(r"\{SUPERLINK:=([^}]+)\}", file.read_text("utf-8")) if file.is_file() else None
    return host_and_port(os.environ.get("SUPERLINK") or (written[1] if written else SUPERLINK))


def listen(address: str) -> str:
    """nginx's `listen` lines: a numeric address is bound as it is, a name stands for all addresses of the machine."""
    host, port = host_and_port(address)
    if host == "localhost":
        host = "127.0.0.1"
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return f"listen {port} ssl;\n        listen [::]:{port} ssl;"
    return f"listen {f'[{ip}]' if ip.version == 6 else ip}:{port} ssl;"


def answer(host: str, port: int, path: str) -> int | None:
    """The HTTP status of an empty call; None if nothing speaks TLS and HTTP there. Nothing secret is sent, so the
    certificate does not matter."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)
    try:
        connection.request("POST", path, body=b"", headers={"Content-Type": "application/protobuf"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def check(address: str, superlink_port: int) -> dict[str, Any]:
    """Ask, as a site would, what answers at the sites' address: only Fleet may, and the SuperLink's own port may not."""
    host, port = host_and_port(address)
    found = {name: answer(host, port, path) for name, path in APIS.items()}
    if set(found.values()) == {None}:
        raise BadRequest(f"nothing answers at {address}; start the proxy, or give the sites' address with --address")
    for name in ("Control", "Runtime"):
        if found[name] is not None and found[name] not in CLOSED:
            raise BadRequest(
                f"{name} answers at {address}, where sites connect: anybody there can run code at every site; "
                "let sites connect to the proxy (proxy/nginx.conf), and bind the SuperLink to 127.0.0.1"
            )
    if found["Fleet"] in (*CLOSED, None, 502, 503, 504):
        raise BadRequest(f"Fleet does not answer at {address} (HTTP {found['Fleet']}); is the SuperLink running?")
    if port != superlink_port and ipaddress_of(host) != "127.0.0.1" and answer(host, superlink_port, APIS["Control"]):
        raise BadRequest(
            f"Control answers at {host}:{superlink_port}, which sites can reach; start the SuperLink with --host 127.0.0.1"
        )
    return {"sites' address": address, "Fleet": "answers", "Control": "closed", "Runtime": "closed", "ready": "yes"}


def ipaddress_of(host: str) -> str:
    return "127.0.0.1" if host == "localhost" else host
