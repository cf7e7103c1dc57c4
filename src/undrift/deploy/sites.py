"""The engine of a deployment: orders go to the sites, replies come back, whoever is late or broken is left out by name.

Judgements on arrival (stage L1) are not sent by themselves: a round costs seconds of polling and process start whatever
the work, so they ride along with the next round's orders. Only those after the last round go out alone, and with them
every site gets its model.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from undrift.contract.declare import Malformed
from undrift.core.errors import RunFailed
from undrift.deploy.codec import pack_orders, unpack_replies
from undrift.deploy.envelope import Envelope, fields
from undrift.deploy.handshake import GONE, Handshake
from undrift.deploy.spec import Spec
from undrift.round.client import serve
from undrift.round.engine import Engine
from undrift.round.orders import Order, Reply
from undrift.round.runtime import Runtime
from undrift.store.states import States

TRIES = 3  # of a round that misses its quorum, before the run ends (and can be gone on with)
NODES_FRESH = 4.0  # seconds; who is connected is asked less often than who has answered
PART = "deploy.flower"  # under which the engine's own notes are kept


class Sites(Engine):
    name = "flower"

    def __init__(
        self,
        spec: Spec,
        handshake: Handshake,
        site: Runtime,
        states: States,
        facts: dict[str, Any],
        ledger: Path | None = None,
    ) -> None:
        self.spec, self.handshake, self.transport, self.runtime, self.states = (
            spec,
            handshake,
            handshake.transport,
            site,
            states,
        )
        self.plan, self.ledger = site.plan, ledger
        self.facts = {**facts, "clients": site.plan.clients, "total": site.plan.total}
        self.owed: dict[int, Order] = {}  # judgements that wait for the next exchange
        self.brought: list[Reply] = []  # judgements that came with the last one
        self._events: list[tuple[str, str]] = []
        self.plan_line = (
            f"engine flower: {len(spec.sites)} sites, {spec.deadline:g} s for a round, quorum {spec.quorum}"
        )

    def work(self, orders: Sequence[Order]) -> Iterable[tuple[int, Reply]]:
        for position, order in enumerate(orders):
            if order.work == "evaluate":
                yield position, serve(self.runtime, order)  # on the server's own test set
        later = [order for order in orders if order.work == "personalize"]
        if later and later[0].round < self.plan.rounds:
            self.owed.update({order.client: order for order in later})
        elif later:
            found = self.exchange({order.client: [order] for order in later})
            for position, order in enumerate(orders):
                reply = found[order.client, "personalize"]
                if reply.failure is not None:
                    self._events.append((reply.failure.kind, f"{reply.failure.detail}; it did not get the final model"))
                yield position, reply
        if any(order.work == "train" for order in orders):
            yield from enumerate(self.train(orders))

    def train(self, orders: Sequence[Order]) -> list[Reply]:
        """One reply per order; a round that misses its quorum is tried again with those who did not answer."""
        needed = self.spec.needed(len(orders))
        replies: dict[int, Reply] = {}
        self.brought = []
        for left in reversed(range(TRIES)):
            missing = [o for o in orders if o.client not in replies or silent(replies[o.client])]
            envelopes = {client: [order] for client, order in self.owed.items()}
            for order in missing:
                envelopes[order.client] = [*envelopes.get(order.client, []), order]
            self.owed = {}
            for (_, work), reply in self.exchange(envelopes).items():
                if work == "train":
                    replies[reply.client] = reply
                elif reply.failure is None:
                    self.brought.append(reply)
            good = sum(reply.failure is None for reply in replies.values())
            if good >= needed:
                break
            why = "; ".join(reply.failure.detail for reply in replies.values() if reply.failure is not None)
            self._events.append(("quorum", f"{good} of {len(orders)} sites gave an answer, {needed} are needed: {why}"))
            if left:
                self.handshake.wait(self.spec.wait, enough=needed)
        else:
            raise RunFailed(
                f"round {orders[0].round} missed its quorum {TRIES} times ({good} of {len(orders)} sites answered, {needed} "
                "are needed); start the run again when they are back, it goes on from here"
            )
        for reply in replies.values():
            if reply.stateful:
                reply.state = {"site": self.spec.everybody[reply.client]}  # a receipt: the state itself is at the site
        return [replies[order.client] for order in orders]

    def exchange(self, envelopes: dict[int, list[Order]]) -> dict[tuple[int, str], Reply]:
        """Send to whom it is for, wait until all have answered or the time is over, and look at every answer."""
        self.handshake.look()
        began = time.monotonic()
        out: dict[str, int] = {}
        found: dict[tuple[int, str], Reply] = {}
        for client, orders in envelopes.items():
            name = self.spec.everybody[client]
            node = self.handshake.node(name)
            envelope = pack_orders(orders, self.plan, **self.facts)
            ticket = None if node is None else self.transport.send(node, envelope, self.spec.deadline)
            if ticket is None:
                found |= failures(orders, "absent", f"{name} is not connected")
                continue
            self.log("down", name, orders[-1].round, envelope)
            out[ticket] = client
        while out:
            for ticket, answer in self.transport.fetch(list(out)).items():
                client = out.pop(ticket)
                found |= self.received(client, envelopes[client], answer, time.monotonic() - began)
            if not out or time.monotonic() - began > self.spec.deadline:
                break
            time.sleep(self.transport.pause)
            self.handshake.look(fresh=NODES_FRESH)
        for client in out.values():
            name = self.spec.everybody[client]
            found |= failures(envelopes[client], "late", f"{name} did not answer within {self.spec.deadline:g} s")
        return found

    def received(
        self, client: int, orders: list[Order], answer: Envelope | str, seconds: float
    ) -> dict[tuple[int, str], Reply]:
        name = self.spec.everybody[client]
        if isinstance(answer, str):
            return failures(orders, "absent" if answer == GONE else "broken", f"{name}: {answer}")
        self.log("up", name, orders[-1].round, answer)
        try:
            if answer.head.get("kind") == "stranger":
                self.handshake.again(name)
                return failures(orders, "late", f"{name} does not know this run any more; it is called again")
            if answer.head.get("kind") == "refusal":
                fields(answer.head, {"kind": (str,), "site": (str,), "sentence": (str,)})
                return failures(orders, "broken", f"{name}: {answer.head['sentence'][:500]}")
            if answer.head.get("site") != name:
                raise Malformed(f"it speaks for {str(answer.head.get('site'))[:40]!r}")
            integers = self.runtime.model.integers()
            most = self.handshake.members[name].n if name in self.handshake.members else 0
            replies = unpack_replies(answer, orders, self.plan, integers, most, self.spec.norm)
        except (Malformed, KeyError, TypeError, ValueError) as wrong:
            return failures(orders, "malformed", f"{name}: {wrong}")
        for reply in replies:
            if reply.failure is not None:
                reply.failure.detail = f"{name}: {reply.failure.detail}"
            facts = {"seconds": round(seconds, 3), "working": round(reply.seconds, 3), "bytes_up": answer.bytes}
            reply.notes = [(PART, key, json.dumps(value)) for key, value in facts.items()]
        return {(client, order.work): reply for order, reply in zip(orders, replies, strict=True)}

    def log(self, way: str, site: str, round: int, envelope: Envelope) -> None:
        """The server's count of what crossed the border."""
        if self.ledger is not None:
            with open(self.ledger, "a") as file:
                file.write(json.dumps({"way": way, "site": site, "round": round, "bytes": envelope.bytes}) + "\n")

    def events(self) -> list[tuple[str, str]]:
        said, self._events = [*self.handshake.events(), *self._events], []
        return said


def silent(reply: Reply) -> bool:
    """Whether it is worth asking again in the same round."""
    return reply.failure is not None and reply.failure.kind in ("absent", "late")


def failures(orders: Sequence[Order], kind: str, detail: str) -> dict[tuple[int, str], Reply]:
    return {(order.client, order.work): Reply(order.round, order.client).failed(kind, detail) for order in orders}
