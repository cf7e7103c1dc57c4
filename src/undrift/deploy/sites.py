"""The engine of a deployment: sends orders to the sites and collects replies. A site that is late or fails is left out
of the round, and the record names it.

Stage L1 is not sent by itself: an exchange costs seconds of polling and process start whatever the work, so these
orders are sent with the next round's training orders. Only those after the last round are sent alone, and with them
every site gets its model.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

from undrift.contract.declare import Malformed
from undrift.core.errors import RunFailed
from undrift.deploy.codes import refusal_sentence
from undrift.deploy.cohort import outliers
from undrift.deploy.envelope import Parcel, check_fields, printable, reason
from undrift.deploy.handshake import GONE, REFUSAL_FIELDS, Handshake
from undrift.deploy.monitor import PART
from undrift.deploy.packing import pack_orders
from undrift.deploy.spec import Spec
from undrift.deploy.unpacking import most_bytes, unpack_replies
from undrift.round.client import serve
from undrift.round.engine import Engine
from undrift.round.orders import Order, Reply
from undrift.round.runtime import Runtime
from undrift.round.server import why_left_out
from undrift.store.states import States

ATTEMPTS = 3  # at a round that misses its quorum, before the run ends (it can be resumed)
NODE_LIST_AGE = 4.0  # seconds; the node list is fetched less often than replies
Replies = dict[tuple[int, str], Reply]  # by client and work


class Unsound(RunFailed):
    """A round missed its quorum because training was not finite at the sites. `round` is that round."""

    def __init__(self, round: int, sentence: str) -> None:
        super().__init__(sentence)
        self.round = round


class SitesEngine(Engine):
    name = "flower"
    trusted = False

    def __init__(
        self,
        spec: Spec,
        handshake: Handshake,
        runtime: Runtime,
        states: States,
        run_fields: dict[str, Any],
    ) -> None:
        self.spec, self.handshake, self.transport = spec, handshake, handshake.transport
        self.runtime, self.plan, self.states, self.traffic = runtime, runtime.plan, states, handshake.traffic
        self.run_fields = {**run_fields, "clients": runtime.plan.clients, "total": runtime.plan.total}
        self.deferred: dict[int, Order] = {}  # evaluations for the next exchange, by client
        self.evaluation_replies: list[Reply] = []  # those that came with the last exchange
        self._events: list[tuple[str, str]] = []
        self.plan_line = (
            f"engine flower: {len(spec.sites)} sites, {spec.deadline:g} s for a round, quorum {spec.quorum}"
        )

    def work(self, orders: Sequence[Order]) -> Iterable[tuple[int, Reply]]:
        for position, order in enumerate(orders):
            if order.work == "evaluate":
                yield position, serve(self.runtime, order)  # on the server's own test set
        evaluations = [order for order in orders if order.work == "personalize"]
        if evaluations and evaluations[0].round < self.plan.rounds:
            self.deferred.update({order.client: order for order in evaluations})
        elif evaluations:
            replies = self.exchange({order.client: [order] for order in evaluations})
            for position, order in enumerate(orders):
                reply = replies[order.client, "personalize"]
                if reply.failure is not None:
                    self._events.append((reply.failure.kind, f"{reply.failure.detail}; it did not get the final model"))
                yield position, reply
        if any(order.work == "train" for order in orders):
            yield from enumerate(self.train(orders))

    def train(self, orders: Sequence[Order]) -> list[Reply]:
        """One reply per order. A round that misses its quorum is repeated with the sites that did not reply."""
        needed = self.spec.needed(len(orders))
        replies: dict[int, Reply] = {}
        self.evaluation_replies = []
        for attempts_left in reversed(range(ATTEMPTS)):
            missing = [o for o in orders if o.client not in replies or is_silent(replies[o.client])]
            by_client = {client: [order] for client, order in self.deferred.items()}
            for order in missing:
                by_client[order.client] = [*by_client.get(order.client, []), order]
            self.deferred = {}
            for (_, work), reply in self.exchange(by_client).items():
                if work == "train":
                    replies[reply.client] = reply
                elif reply.failure is None:
                    self.evaluation_replies.append(reply)
            kinds = [why_left_out(order, replies[order.client]) for order in orders]
            usable = kinds.count("")
            if usable >= needed:
                break
            why = "; ".join(reply.failure.detail for reply in replies.values() if reply.failure is not None)
            self._events.append(("quorum", f"{usable} of {len(orders)} sites replied, {needed} are needed: {why}"))
            if usable + kinds.count("nonfinite") >= needed:  # asking again with the same model would not help
                raise Unsound(
                    orders[0].round,
                    f"training was not finite at {kinds.count('nonfinite')} of {len(orders)} sites in round "
                    f"{orders[0].round}",
                )
            if attempts_left:
                self.handshake.wait_for_sites(self.spec.wait, enough=needed)
        else:
            raise RunFailed(
                f"round {orders[0].round} missed its quorum {ATTEMPTS} times ({usable} of {len(orders)} sites replied, "
                f"{needed} are needed); start the run again when they are back, it resumes here"
            )
        self.leave_out_outliers(orders, replies)
        for reply in replies.values():
            if reply.stateful:
                reply.state = {"site": self.spec.all_sites[reply.client]}  # a receipt: the state itself is at the site
        return [replies[order.client] for order in orders]

    def leave_out_outliers(self, orders: Sequence[Order], replies: dict[int, Reply]) -> None:
        """Mark the replies that are far longer than the others' as failed."""
        sound = {o.client: replies[o.client] for o in orders if not why_left_out(o, replies[o.client])}
        found = outliers({o.client: o for o in orders}, sound, self.plan, self.spec.relative_norm)
        for client, sentence in found.items():
            replies[client] = replies[client].failed("outlier", f"{self.spec.all_sites[client]}: {sentence}")

    def exchange(self, by_client: dict[int, list[Order]]) -> Replies:
        """Send the orders, wait until all sites have replied or the deadline has passed, and check every reply."""
        self.handshake.poll()
        began = time.monotonic()
        replies: Replies = {}
        awaited: dict[str, int] = {}  # client by message id
        for client, orders in by_client.items():
            site = self.spec.all_sites[client]
            node = self.handshake.node(site)
            envelope = pack_orders(orders, self.plan, **self.run_fields)
            message_id = None if node is None else self.transport.send(node, envelope, self.spec.deadline)
            if message_id is None:
                replies |= self.noted(failures(orders, "absent", f"{site} is not connected"), 0.0)
                continue
            self.traffic.add("down", site, orders[-1].round, envelope)
            awaited[message_id] = client
        sites = [self.spec.all_sites[client] for client in awaited.values()]
        self.handshake.monitor.awaiting(max(o[-1].round for o in by_client.values()), sites, self.spec.deadline)
        while awaited:
            for message_id, received in self.transport.fetch(list(awaited)).items():
                client, seconds = awaited.pop(message_id), time.monotonic() - began
                replies |= self.noted(self.decode(client, by_client[client], received, seconds), seconds)
            if not awaited or time.monotonic() - began > self.spec.deadline:
                break
            time.sleep(self.transport.pause)
            self.handshake.poll(max_age=NODE_LIST_AGE)
        for client in awaited.values():
            site = self.spec.all_sites[client]
            late = failures(by_client[client], "late", f"{site} did not reply within {self.spec.deadline:g} s")
            replies |= self.noted(late, self.spec.deadline)
        return replies

    def noted(self, replies: Replies, seconds: float) -> Replies:
        """One site's replies, after the monitor has noted that it is no longer awaited."""
        (last,) = [reply for reply in replies.values()][-1:]
        kinds = [reply.failure.kind for reply in replies.values() if reply.failure is not None]
        self.handshake.monitor.reply(last.round, self.spec.all_sites[last.client], seconds, (*kinds, None)[0])
        return replies

    def decode(self, client: int, orders: list[Order], received: Parcel | str, seconds: float) -> Replies:
        """The replies in a received parcel, or the failure that takes their place."""
        site = self.spec.all_sites[client]
        if isinstance(received, str):
            return failures(orders, "absent" if received == GONE else "broken", f"{site}: {printable(received)}")
        self.traffic.add("up", site, orders[-1].round, received)
        try:
            return self.read_replies(client, orders, received, seconds)
        except Exception as error:  # whatever a site sends, only that site is left out
            return failures(orders, "malformed", f"{site}: {reason(error)}")

    def read_replies(self, client: int, orders: list[Order], received: Parcel, seconds: float) -> Replies:
        """The replies in a parcel. One that is not as declared raises."""
        site, integers = self.spec.all_sites[client], self.runtime.model.integers()
        envelope = received.open(most=most_bytes(orders, self.plan, integers))
        if envelope.head.get("kind") == "unknown run":
            self.handshake.repeat(site)
            return failures(orders, "late", f"{site} does not know this run; the handshake is repeated")
        if envelope.head.get("kind") == "refusal":
            code = check_fields(envelope.head, REFUSAL_FIELDS)["code"]
            return failures(orders, "broken", f"{site}: {refusal_sentence(code)}")
        if envelope.head.get("site") != site:
            raise Malformed(f"it replies as {str(envelope.head.get('site'))[:40]!r}")
        max_samples = self.handshake.sites[site].n if site in self.handshake.sites else 0
        task = self.runtime.plan.task
        least_loss = task.least_loss if self.runtime.loss == task.loss else -math.inf
        replies = unpack_replies(envelope, orders, self.plan, integers, max_samples, self.spec.norm, least_loss)
        for reply in replies:
            if reply.failure is not None:
                reply.failure.detail = f"{site}: {reply.failure.detail}"
            notes = {"seconds": round(seconds, 3), "working": round(reply.seconds, 3), "bytes_up": received.bytes}
            reply.notes = [(PART, key, json.dumps(value)) for key, value in notes.items()]
        return {(client, order.work): reply for order, reply in zip(orders, replies, strict=True)}

    def forget(self) -> None:
        """Drop what belongs to rounds that are rolled back."""
        self.deferred, self.evaluation_replies = {}, []

    def events(self) -> list[tuple[str, str]]:
        events, self._events = [*self.handshake.events(), *self._events], []
        return events


def is_silent(reply: Reply) -> bool:
    """Whether the site did not reply, so that it is asked again in the same round."""
    return reply.failure is not None and reply.failure.kind in ("absent", "late")


def failures(orders: Sequence[Order], kind: str, detail: str) -> Replies:
    return {(order.client, order.work): Reply(order.round, order.client).failed(kind, detail) for order in orders}
