"""Who is there. A site is known by its name in the operator's list, never by Flower's node ids.

Every node that appears is called once (again when its SuperNode was restarted). It answers with its name, its numbers of
samples, its label names and its layout; what differs from the server's is refused with a sentence, and the federation
goes on without that site. A node that was registered under a name may only speak for that site; two nodes that both
claim one site: the one that answered first keeps it while it is connected.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import undrift
from undrift.contract.declare import Malformed
from undrift.deploy.codec import ArrayPacker
from undrift.deploy.envelope import LONGEST, Envelope, fields
from undrift.deploy.spec import Spec, method_words
from undrift.experiment.setup import Setup

ANSWER = {
    "kind": (str,), "site": (str,), "version": (str,), "n": (int,), "tests": (int,), "labels": (list,), "layout": (str,),
}  # fmt: skip


@dataclass(frozen=True)
class Connection:
    """A connected node: the name it was registered under ("" without one) and since when it is connected."""

    name: str
    since: str


GONE = "its node went away before it answered"


class Transport(Protocol):
    """Who carries parcels. Where no answer will come, `fetch` gives the reason instead, `GONE` if nobody is there any more."""

    pause: float  # seconds between two looks for answers

    def nodes(self) -> Mapping[int, Connection]: ...
    def send(self, node: int, envelope: Envelope, seconds: float) -> str | None: ...
    def fetch(self, tickets: Collection[str]) -> Mapping[str, Envelope | str]: ...


@dataclass(frozen=True)
class ConnectedSite:
    node: int
    n: int  # training samples
    tests: int


class Handshake:
    """The sites that are there now, and what to tell of those that are not."""

    def __init__(self, spec: Spec, transport: Transport, call: Envelope) -> None:
        self.spec, self.transport, self.call = spec, transport, call
        self.members: dict[str, ConnectedSite] = {}
        self.said: list[tuple[str, str]] = []  # (kind of event, sentence)
        self.tickets: dict[str, int] = {}  # calls that are out
        self._called: dict[int, Connection] = {}
        self._online: Mapping[int, Connection] = {}
        self._looked = -math.inf

    def look(self, fresh: float = 0.0) -> None:
        """Call whoever is new, and hear whoever has answered; a list of nodes younger than `fresh` seconds will do."""
        if time.monotonic() - self._looked >= fresh:
            before, self._online, self._looked = self._online, self.transport.nodes(), time.monotonic()
            if set(before) - set(self._online):  # somebody left: who was refused may try again
                mine = {member.node for member in self.members.values()}
                self._called = {node: seen for node, seen in self._called.items() if node in mine}
        for node, seen in self._online.items():
            if self._called.get(node) != seen:
                ticket = self.transport.send(node, self.call, self.spec.deadline)
                if ticket is not None:
                    self._called[node], self.tickets[ticket] = seen, node
        if self.tickets:
            for ticket, found in self.transport.fetch(list(self.tickets)).items():
                self.hear(self.tickets.pop(ticket), found)

    def wait(self, seconds: float, enough: int | None = None) -> None:
        """Until everybody listed is there (or `enough` of those who train), or the time is over."""
        until = time.monotonic() + seconds
        while True:
            self.look()
            here = self.here()
            if len(here) == len(self.spec.everybody) or (
                enough is not None and len(here & set(self.spec.sites)) >= enough
            ):
                return
            if time.monotonic() >= until:
                return
            time.sleep(self.transport.pause)

    def here(self) -> set[str]:
        return {site for site, member in self.members.items() if member.node in self._online}

    def node(self, site: str) -> int | None:
        member = self.members.get(site)
        return member.node if member is not None and member.node in self._online else None

    def again(self, site: str) -> None:
        """A site that says it does not know this run is called again."""
        if site in self.members:
            self._called.pop(self.members.pop(site).node, None)

    def hear(self, node: int, found: Envelope | str) -> None:
        seen = self._called.get(node, Connection("", ""))
        try:
            self.admit(node, seen, found)
        except Malformed as wrong:
            who = claimed(found) or seen.name or f"node {node}"
            self.members = {site: member for site, member in self.members.items() if member.node != node}
            self.said.append(("refused", f"{who} was refused: {wrong}"))

    def admit(self, node: int, seen: Connection, found: Envelope | str) -> None:
        if isinstance(found, str):
            raise Malformed(found)
        if found.head.get("kind") == "refusal":
            raise Malformed(
                str(fields(found.head, {"kind": (str,), "site": (str,), "sentence": (str,)})["sentence"])[:LONGEST]
            )
        answer, call = fields(found.head, ANSWER), self.call.head
        site = answer["site"]
        if site not in self.spec.everybody:
            raise Malformed(f"there is no site {site[:40]!r} in the list {', '.join(self.spec.everybody)}")
        if seen.name and seen.name != site:
            raise Malformed(f"its key is registered for {seen.name}, not for {site}")
        if answer["version"] != call["version"]:
            raise Malformed(f"it has undrift {answer['version'][:20]}, the server {call['version']}")
        if answer["labels"] != call["labels"]:
            raise Malformed(f"its labels are {answer['labels']}, the server's {call['labels']}"[:LONGEST])
        if answer["layout"] != call["layout"]:
            raise Malformed("its model is not laid out as the server's")
        if answer["n"] < (site in self.spec.sites) or answer["tests"] < 0:
            raise Malformed(f"it has {answer['n']} training samples")
        other = self.members.get(site)
        if other is not None and other.node != node and other.node in self._online:
            raise Malformed(f"another node that is connected speaks for {site}")
        if other is None or other.n != answer["n"]:
            self.said.append(
                ("joined", f"{site} is there with {answer['n']} training and {answer['tests']} test samples")
            )
        self.members[site] = ConnectedSite(node, answer["n"], answer["tests"])

    def events(self) -> list[tuple[str, str]]:
        said, self.said = self.said, []
        return said


def claimed(found: Envelope | str) -> str:
    site = "" if isinstance(found, str) else found.head.get("site", "")
    return site[:40] if isinstance(site, str) else ""


def calling(spec: Spec, setup: Setup, run: str, session: int) -> Envelope:
    """The call: what this side has, and Θ⁰."""
    packer = ArrayPacker()
    head: dict[str, Any] = {
        "kind": "roll", "run": run, "session": session, "version": undrift.__version__, "parts": method_words(setup),
        "layout": setup.plan.layout.signature, "labels": list(spec.labels),
        "initial": packer.add("initial", setup.runtime.initial),
        "integers": {name: packer.add(name, value.long()) for name, value in setup.runtime.model.integers().items()},
    }  # fmt: skip
    return Envelope(head, packer.arrays)
