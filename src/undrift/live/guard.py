"""Who may ask: the Host header must name this server, and with a token the browser must know it.

A page of another site can make a browser ask this server, under a name that the attacker's DNS points at this machine
(DNS rebinding). The browser sends that name as Host, so a Host that is not ours is refused. IP addresses are ours: a
name is what rebinding needs.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from undrift.report import page

Scope = MutableMapping[str, Any]
LOOPBACK = ("localhost", "127.0.0.1", "::1")
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@/#?\s]+))(?::\d*)?")
STYLE = (
    "<style>:root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:2rem auto;padding:0 1rem}</style>"
)
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "connect-src 'self'; font-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass
class Guard:
    """Wraps the app: every request passes here first."""

    app: Callable[[Scope, Any, Any], Awaitable[None]]
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    names: frozenset[str] = field(default_factory=frozenset)

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        answer = self.refusal(request)
        if answer is None:
            await self.app(scope, receive, with_headers(send))
        else:
            await answer(scope, receive, with_headers(send))

    def refusal(self, request: Request) -> Response | None:
        """None if the request may pass."""
        if not self.knows_host(request.headers.get("host", "")):
            return sentence(421, "This address is not one of this server's names; open the address that it printed.")
        if request.method not in ("GET", "HEAD"):
            return sentence(405, "This page only shows: it takes no changes.")
        return None if self.token is None else self.without_token(request, self.token)

    def knows_host(self, header: str) -> bool:
        name = host_name(header)
        if name in LOOPBACK or name == self.host.lower():
            return True
        if self.token is None:
            return False
        return is_address(name) or name in (self.names or own_names())

    def without_token(self, request: Request, token: str) -> Response | None:
        """The token arrives once in the address. A cookie keeps it, so that it is not seen in the address any more."""
        cookie = f"undrift-{self.port}"
        if hmac.compare_digest(request.cookies.get(cookie, "").encode(), token.encode()):
            return None
        given = request.query_params.get("token", "")
        if not hmac.compare_digest(given.encode(), token.encode()):
            return sentence(403, "The token is missing or wrong; open the address that `undrift watch` printed.")
        rest = urlencode([(key, value) for key, value in parse_qsl(request.url.query) if key != "token"])
        path = f"/{request.url.path.lstrip('/')}"  # `//name` would be another host
        moved = RedirectResponse(f"{path}{'?' * bool(rest)}{rest}", 303)
        moved.set_cookie(cookie, token, httponly=True, samesite="strict")
        return moved


def host_name(header: str) -> str:
    """The name in a Host header, without the port. Empty if it is not a name or an address, with or without a port."""
    found = HOST.fullmatch(header.strip().lower())
    return (found[1] or found[2]) if found else ""


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def own_names() -> frozenset[str]:
    name = socket.gethostname().lower()
    return frozenset((name, name.partition(".")[0], f"{name.partition('.')[0]}.local"))


def sentence(status: int, text: str) -> Response:
    """A clean page with one sentence. Its style is in it: who is refused gets no file."""
    back = "<p><a href='/'>all runs</a></p>" if status == 404 else ""
    body = page.document("Undrift", STYLE, page.inside("refused", text) + back)
    return Response(body, status, media_type="text/html")


def with_headers(send: Any) -> Any:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            known = {name.lower() for name, _ in message.setdefault("headers", [])}
            more = [(key.lower().encode(), value.encode()) for key, value in HEADERS.items()]
            if b"cache-control" not in known:
                more.append((b"cache-control", b"no-store"))
            message["headers"] = [*message["headers"], *more]
        await send(message)

    return sent
