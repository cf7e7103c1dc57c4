"""The handshake: which sites are connected. A site is identified by its name in the operator's list, never by Flower's
node id.

The server sends one request to every node that connects, and another when its SuperNode was restarted. The site replies
with its name, its sample counts, its label names and its layout. If anything differs from the server's, the site is
refused with a sentence and the federation continues without it. A node may only speak for the site whose name its key
was registered under (`Claims`).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

import undrift
from undrift.contract.declare import Malformed
from undrift.deploy.codes import refusal_sentence
from undrift.deploy.envelope import HEADER_BYTES, Envelope, Parcel, check_fields, length_of, printable, reason
from undrift.deploy.monitor import Monitor
from undrift.deploy.node_names import Connection, NodeNames
from undrift.deploy.packing import ArrayPacker
from undrift.deploy.spec import MAX_SAMPLES, Spec, resolved_parts
from undrift.experiment.setup import Setup

REPLY_FIELDS = {
    "kind": (str,), "site": (str,), "version": (str,), "n": (int,), "tests": (int,), "labels": (list,), "layout": (str,),
}  # fmt: skip
REFUSAL_FIELDS = {"kind": (str,), "site": (str,), "code": (str,)}


class TrafficLog:
    """border.jsonl: the bytes of every envelope that the server sends or gets, the handshake's included."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def add(self, way: str, site: str, round: int | None, envelope: Envelope | Parcel) -> None:
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps({"way": way, "site": site, "round": round, "bytes": envelope.bytes}) + "\n")


GONE = "its node disconnected before it replied"


class Transport(Protocol):
    """Carries envelopes. `send` returns a message id. `fetch` returns replies by message id, not yet decoded, or the
    reason why no reply will come (`GONE` if the node has disconnected)."""

    pause: float  # seconds between two calls of `fetch`

    def nodes(self) -> Mapping[int, Connection]: ...
    def send(self, node: int, envelope: Envelope, seconds: float) -> str | None: ...
    def fetch(self, message_ids: Collection[str]) -> Mapping[str, Parcel | str]: ...


@dataclass(frozen=True)
class ConnectedSite:
    node: int
    n: int  # training samples
    tests: int


class Handshake:
    """The sites that are connected now, and the events about the others."""

    def __init__(
        self,
        spec: Spec,
        transport: Transport,
        request: Envelope,
        traffic: TrafficLog | None = None,
        monitor: Monitor | None = None,
        base: Callable[[], torch.Tensor] | None = None,
    ) -> None:
        """`base` makes the array of frozen parameters, for sites that do not have them."""
        self.spec, self.transport, self.request = spec, transport, request
        self.traffic, self.monitor = traffic or TrafficLog(None), monitor or Monitor()
        self.node_names = NodeNames(spec.unnamed_nodes)
        self.sites: dict[str, ConnectedSite] = {}
        self.pending_events: list[tuple[str, str]] = []  # (kind, sentence)
        self._base = base
        self._got_base: set[int] = set()  # nodes that were sent the frozen parameters
        self._awaited: dict[str, int] = {}  # node by the id of a request without a reply
        self._requested: dict[int, Connection] = {}
        self._online: Mapping[int, Connection] = {}
        self._listed_at = -math.inf

    def poll(self, max_age: float = 0.0) -> None:
        """Send requests to new nodes and handle replies. A node list younger than `max_age` seconds is reused."""
        if time.monotonic() - self._listed_at >= max_age:
            before, self._online, self._listed_at = self._online, self.transport.nodes(), time.monotonic()
            if set(before) - set(self._online):  # a node disconnected: refused nodes may try again
                accepted = {site.node for site in self.sites.values()}
                self._requested = {node: c for node, c in self._requested.items() if node in accepted}
        for node, connection in self._online.items():
            if self._requested.get(node) != connection:
                self._send_request(node, connection, self.request)
        while self._awaited and (replies := self.transport.fetch(list(self._awaited))):
            for message_id, reply in replies.items():
                self._handle_reply(self._awaited.pop(message_id), reply)

    def _send_request(self, node: int, connection: Connection, request: Envelope) -> None:
        message_id = self.transport.send(node, request, self.spec.deadline)
        if message_id is not None:
            self.traffic.add("down", connection.name or f"node {node}", None, request)
            self._requested[node], self._awaited[message_id] = connection, node

    def _send_base(self, node: int, connection: Connection) -> None:
        """The request again with the frozen parameters, which a site keeps: they travel once."""
        assert self._base is not None
        self._got_base.add(node)
        head, arrays = self.request.head, self.request.arrays
        self._send_request(node, connection, Envelope({**head, "frozen": "frozen"}, {**arrays, "frozen": self._base()}))

    def wait_for_sites(self, seconds: float, enough: int | None = None) -> None:
        """Wait until all listed sites (or `enough` of those that train) are connected, for at most `seconds`."""
        until = time.monotonic() + seconds
        while True:
            self.poll()
            missing, left = self.missing(enough), until - time.monotonic()
            self.monitor.awaiting(None, missing if left > 0 else [], left)
            if not missing or left <= 0:
                return
            time.sleep(self.transport.pause)

    def missing(self, enough: int | None) -> list[str]:
        """The listed sites that are not connected, none if `enough` of those that train are."""
        connected = self.connected()
        if enough is not None and len(connected & set(self.spec.sites)) >= enough:
            return []
        return [site for site in self.spec.all_sites if site not in connected]

    def connected(self) -> set[str]:
        return {name for name, site in self.sites.items() if site.node in self._online}

    def node(self, name: str) -> int | None:
        site = self.sites.get(name)
        return site.node if site is not None and site.node in self._online else None

    def repeat(self, name: str) -> None:
        """Send the request again to a site that does not know this run."""
        if name in self.sites:
            node = self.sites.pop(name).node
            self._requested.pop(node, None)
            self._got_base.discard(node)

    def _handle_reply(self, node: int, received: Parcel | str) -> None:
        connection = self._requested.get(node, Connection("", ""))
        name = connection.name  # the operator's word comes before the node's
        try:
            if isinstance(received, str):
                raise Malformed(received)
            try:
                reply = received.open(most=HEADER_BYTES + 2 * length_of(self.request.text))
                name = name or claimed_name(reply)
            finally:
                known = name if name in self.spec.all_sites else f"node {node}"
                self.traffic.add("up", known, None, received)
            if reply.head.get("code") == "base" and self._base is not None and node not in self._got_base:
                self._send_base(node, connection)
            else:
                self._accept(node, connection, reply)
        except Exception as error:  # whatever a node sends, only that node is refused
            self.sites = {known: site for known, site in self.sites.items() if site.node != node}
            shown = printable(name) or f"node {node}"
            self.pending_events.append(("refused", f"{shown} was refused: {reason(error)}"))

    def _accept(self, node: int, connection: Connection, reply: Envelope) -> None:
        """Check a reply and register its site. A reply that does not fit is `Malformed`."""
        if reply.arrays:
            raise Malformed("a reply to the handshake has no arrays")
        if reply.head.get("kind") == "refusal":
            raise Malformed(refusal_sentence(check_fields(reply.head, REFUSAL_FIELDS)["code"]))
        head, request = check_fields(reply.head, REPLY_FIELDS), self.request.head
        name = head["site"]
        if name not in self.spec.all_sites:
            raise Malformed(f"there is no site {name[:40]!r} in the list {', '.join(self.spec.all_sites)}")
        known = self.sites.get(name)
        self.node_names.check(name, node, connection, known.node if known and known.node in self._online else None)
        if head["version"] != request["version"]:
            raise Malformed(f"it has undrift {head['version'][:20]}, the server {request['version']}")
        if head["labels"] != request["labels"]:
            raise Malformed(f"its labels are {head['labels']}, the server's {request['labels']}")
        if head["layout"] != request["layout"]:
            raise Malformed("its model's layout differs from the server's")
        most = self.spec.most_samples(name)
        if not (name in self.spec.sites) <= head["n"] <= most or not 0 <= head["tests"] <= MAX_SAMPLES:
            raise Malformed(
                f"it has {head['n']} training and {head['tests']} test samples; at most {most} training samples are "
                "accepted"
            )
        self.node_names.accept(name, node, connection)
        if known is None or known.n != head["n"]:
            self.pending_events.append(
                ("joined", f"{name} joined with {head['n']} training and {head['tests']} test samples")
            )
        self.sites[name] = ConnectedSite(node, head["n"], head["tests"])

    def events(self) -> list[tuple[str, str]]:
        """The events since the last call."""
        events, self.pending_events = self.pending_events, []
        return events


def claimed_name(reply: Envelope) -> str:
    name = reply.head.get("site", "")
    return name[:40] if isinstance(name, str) else ""


def handshake_request(spec: Spec, setup: Setup, run: str, session: int) -> Envelope:
    """The request: what the server has, and Θ⁰. Its kind is "roll", as left.jsonl names it."""
    packer = ArrayPacker()
    head: dict[str, Any] = {
        "kind": "roll",
        "run": run,
        "session": session,
        "version": undrift.__version__,
        "parts": resolved_parts(setup),
        "layout": setup.plan.layout.signature,
        "labels": list(spec.labels),
        "base": setup.runtime.model.frozen.digest,
        "initial": packer.add("initial", setup.runtime.initial),
        "integers": {name: packer.add(name, value.long()) for name, value in setup.runtime.model.integers().items()},
    }
    return Envelope(head, packer.arrays)
