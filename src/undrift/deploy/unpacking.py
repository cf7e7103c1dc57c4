"""Orders and replies from envelopes. No received value is trusted.

Everything is checked before it is used: names, types, shapes, sizes, the round, ranges, finiteness and the norm of an
update. Whatever is not as declared is `Malformed`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import torch

from undrift.contract.context import Plan
from undrift.contract.declare import Along, Array, Declaration, Malformed, Models, Number, Numbers, read
from undrift.core.vector import Integers
from undrift.deploy.claims import check_counters, check_counts, check_norm, check_statistics, loss_of, norm_of
from undrift.deploy.codes import FAILURES, failure_sentence
from undrift.deploy.envelope import HEADER_BYTES, Envelope, check_fields
from undrift.round.orders import Failure, Order, Reply
from undrift.round.packed import most_packed_bytes, unpacked

CLIENT_NUMBER = re.compile(r"[0-9]{1,12}")
METRIC_NAME = re.compile(r"[\w:.@-]{1,40}")
MAX_METRICS = 200  # beside one recall per class
MAX_COUNT = 2**40  # of an integer buffer: far above any number of steps, and adding to it cannot overflow


class Decoder:
    """Reads an envelope for one plan. Anything that is not as declared is `Malformed`."""

    def __init__(self, envelope: Envelope, plan: Plan, integers: Integers) -> None:
        self.envelope, self.plan, self.templates = envelope, plan, integers
        self.used: set[str] = set()

    def vector(self, reference: Any, base: torch.Tensor) -> torch.Tensor:
        """A vector with the shared entries that arrived and the private entries of `base`."""
        return self.filled(reference, base, None if self.plan.private is None else self.plan.private[: len(base)])

    def filled(self, reference: Any, base: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """What arrived, and the entries of `base` where the mask says that none did."""
        received = self.array(reference, torch.float32, (len(base) if mask is None else int((~mask).sum()),))
        if mask is None:
            return received.clone()
        vector = base.clone()
        vector[~mask] = received
        return vector

    def trained(self, reference: Any, sent: torch.Tensor) -> torch.Tensor:
        """The model that a site trained: as it is or, where upload parts have a wire form, as the update they packed."""
        if not self.plan.method.on("upload"):
            return self.filled(reference, sent, self.plan.unsent)
        if not isinstance(reference, dict) or not set(reference.values()) <= set(self.envelope.arrays):
            raise Malformed("the update is not packed as the upload parts do it")
        self.used |= set(reference.values())
        arrays = {name: self.envelope.arrays[place] for name, place in reference.items()}
        return sent + unpacked(self.plan, arrays)

    def array(self, reference: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        if not isinstance(reference, str) or reference not in self.envelope.arrays:
            raise Malformed(f"the array {reference!r} is missing")
        self.used.add(reference)
        array = self.envelope.arrays[reference]
        if array.dtype != dtype:
            raise Malformed(f"{reference} has dtype {str(array.dtype)[6:]} instead of {str(dtype)[6:]}")
        if tuple(array.shape) != shape:
            raise Malformed(f"{reference} has shape {tuple(array.shape)} instead of {shape}")
        return array

    def integers(self, references: Any, private: bool = False) -> Integers:
        """The integer buffers that travel. The handshake carries Θ⁰ whole, so there the private ones travel too."""
        excluded = set() if private else self.plan.private_integers
        expected = {name: value for name, value in self.templates.items() if name not in excluded}
        if not isinstance(references, dict) or set(references) != set(expected):
            raise Malformed("the integer buffers are not those of the model")
        received = {}
        for name, value in expected.items():
            array = self.array(references[name], torch.int64, tuple(value.shape))
            if array.numel() and not -MAX_COUNT <= int(array.min()) <= int(array.max()) <= MAX_COUNT:
                raise Malformed(f"the integer buffer {name} has a value beyond {MAX_COUNT}")
            received[name] = array.to(value.dtype).clone()
        return received

    def nothing_left(self) -> None:
        """Refuse arrays that no entry refers to: nobody would look at them, and they were not declared."""
        if unused := sorted(set(self.envelope.arrays) - self.used):
            raise Malformed(f"the array {unused[0]!r} belongs to nothing that is declared")

    def message(self, declared: Declaration, entry: Any, base: torch.Tensor) -> dict[str, Any]:
        if not isinstance(entry, dict) or set(entry) - set(declared):
            raise Malformed(f"the message has names that are not declared (declared: {sorted(declared)})")
        nP = self.plan.layout.nP
        message: dict[str, Any] = {}
        for key, value in entry.items():
            kind = declared[key]
            if isinstance(kind, Number):
                message[key] = value
            elif isinstance(kind, Numbers):
                message[key] = by_client(value)
            elif isinstance(kind, Models):
                message[key] = {client: self.vector(reference, base) for client, reference in by_client(value).items()}
            elif isinstance(kind, Along):
                message[key] = self.vector(value, torch.zeros(nP) if kind.what == "P" else base)
            else:
                assert isinstance(kind, Array)
                message[key] = self.array(value, torch.float32, (kind.floats(self.plan),)).clone()
        return message


def by_client(entry: Any) -> dict[int, Any]:
    if not isinstance(entry, dict) or not all(CLIENT_NUMBER.fullmatch(key) for key in entry):
        raise Malformed("an entry's keys are not client numbers")
    return {int(key): value for key, value in entry.items()}


NONE = type(None)
ORDER_FIELDS = {
    "work": (str,), "round": (int,), "state_round": (int, NONE), "keep_round": (int, NONE), "evaluate": (bool,),
    "final": (bool,), "vector": (str,), "integers": (dict,), "messages": (dict,),
}  # fmt: skip
TRAINING_FIELDS = {
    "n": (int,), "steps": (int,), "effective_steps": (float, int, NONE), "loss": (float, NONE), "last": (float, NONE),
    "stateful": (bool,), "vector": (str, dict), "integers": (dict,), "messages": (dict,),
}  # fmt: skip
COMMON_FIELDS = {"work": (str,), "round": (int,), "seconds": (float, int), "metrics": (dict,)}
REPLY_FIELDS = {**COMMON_FIELDS, "failure": (str,), **TRAINING_FIELDS}


def unpack_orders(
    envelope: Envelope, plan: Plan, initial: torch.Tensor, integers: Integers, client: int
) -> list[Order]:
    """At the site. Private entries are those of Θ⁰ until the client's own replace them."""
    decoder, orders = Decoder(envelope, plan, integers), []
    for entry in envelope.head["orders"]:
        check_fields(entry, ORDER_FIELDS)
        messages = {
            part.key: decoder.message(part.downlink, entry["messages"][part.key], initial)
            for part in plan.method.parts
            if part.key in entry["messages"]
        }
        orders.append(
            Order(
                entry["work"],
                entry["round"],
                client,
                decoder.vector(entry["vector"], initial),
                {**integers, **decoder.integers(entry["integers"])},
                messages,
                entry["state_round"],
                entry["keep_round"],
                evaluate_on=("own",) if entry["evaluate"] else (),
                data="final" if entry["final"] else "global",
            )
        )
    return orders


def most_bytes(orders: Sequence[Order], plan: Plan, integers: Integers) -> int:
    """The most bytes that replies to these orders can need, by the declarations."""
    declared = [kind for part in plan.method.parts for kind in part.uplink.values()]
    by_client = sum(kind.floats(plan) for kind in declared if isinstance(kind, (Models, Numbers)))
    header = HEADER_BYTES + 128 * (plan.classes + by_client + len(declared)) + sum(4 * len(n) + 128 for n in integers)
    vectors = most_packed_bytes(plan) + 4 * sum(kind.floats(plan) for kind in declared)
    training = vectors + 8 * sum(value.numel() for value in integers.values())
    return sum(header + training * (order.work == "train") for order in orders)


def unpack_replies(
    envelope: Envelope,
    orders: Sequence[Order],
    plan: Plan,
    integers: Integers,
    max_samples: int,
    norm: float,
    least_loss: float = -math.inf,
) -> list[Reply]:
    """At the server: one reply per order, in the same sequence. `max_samples` is the handshake's sample count,
    `least_loss` the smallest value that the run's loss can have."""
    check_fields(envelope.head, {"kind": (str,), "site": (str,), "replies": (list,)})
    entries = envelope.head["replies"]
    if len(entries) != len(orders):
        raise Malformed(f"there are {len(entries)} replies to {len(orders)} orders")
    decoder = Decoder(envelope, plan, integers)
    replies = [
        unpack_reply(decoder, entry, order, max_samples, norm, least_loss)
        for entry, order in zip(entries, orders, strict=True)
    ]
    decoder.nothing_left()
    return replies


def unpack_reply(decoder: Decoder, entry: Any, order: Order, max_samples: int, norm: float, least_loss: float) -> Reply:
    check_fields(entry, REPLY_FIELDS, optional=("failure", *TRAINING_FIELDS))
    if entry["work"] != order.work or entry["round"] != order.round:
        raise Malformed(
            f"the reply is for {entry['work'][:40]} in round {entry['round']}, not {order.work} in {order.round}"
        )
    metrics = checked_metrics(entry["metrics"], MAX_METRICS + decoder.plan.classes)
    reply = Reply(order.round, order.client, seconds=float(entry["seconds"]), metrics=metrics)
    if reply.seconds < 0:
        raise Malformed(f"it worked for {reply.seconds:g} seconds")
    if "failure" in entry:
        if entry["failure"] not in FAILURES:
            raise Malformed(f"it reports the failure {entry['failure'][:40]!r}, which there is not")
        reply.failure = Failure(entry["failure"], failure_sentence(entry["failure"]))
        return reply
    if order.work != "train":
        return reply
    check_fields(entry, {**COMMON_FIELDS, **TRAINING_FIELDS})
    check_counts(entry, decoder.plan, order.round, max_samples)
    reply.n, reply.steps, reply.stateful = entry["n"], entry["steps"], entry["stateful"]
    reply.effective_steps = entry["effective_steps"]
    reply.loss, reply.last = (loss_of(entry[name], least_loss) for name in ("loss", "last"))
    reply.integers = {**order.integers, **decoder.integers(entry["integers"])}
    check_counters(reply.integers, order.integers, reply.steps, decoder.plan.layout)
    reply.vector = decoder.trained(entry["vector"], order.vector)
    if not decoder.plan.method.on("upload"):  # noise and rounding may make a small variance negative
        check_statistics(reply.vector, decoder.plan.layout)
    max_norm = norm * max(1.0, norm_of(order.vector))
    check_norm("the update", reply.vector - order.vector, max_norm)
    reply.client_messages = unpack_messages(decoder, entry["messages"], order, max_norm)
    return reply


def unpack_messages(
    decoder: Decoder, entries: dict[str, Any], order: Order, max_norm: float
) -> dict[str, dict[str, Any]]:
    """A training reply's messages by part, each read as its part declared it."""
    plan, messages = decoder.plan, dict[str, dict[str, Any]]()
    if unknown := sorted(set(entries) - {part.key for part in plan.method.parts}):
        raise Malformed(f"it has a message of {unknown[0]!r}, which is no part of the method")
    for part in plan.method.parts:
        if part.uplink or part.key in entries:
            message = decoder.message(part.uplink, entries.get(part.key, {}), order.vector)
            if missing := sorted(set(part.uplink) - set(message)):
                raise Malformed(f"{part.key}'s {missing[0]!r} is declared and missing")
            server_message = order.server_messages.get(part.key, {})
            messages[part.key] = read(part.key, part.uplink, message, plan, unchanged, server_message)
            for name, value in messages[part.key].items():
                if isinstance(value, torch.Tensor):  # at most a sum of gradients: an update over the learning rate
                    check_norm(f"{part.key}'s {name!r}", value, max_norm / min(1.0, plan.rate(order.round)))
    return messages


def unchanged(vector: torch.Tensor) -> torch.Tensor:
    """No private entries to conceal: they never travel, so they are the server's already."""
    return vector


def checked_metrics(entry: Any, most: int) -> dict[str, dict[str, float]]:
    for data, metrics in entry.items():
        if data not in ("own", "G") or not isinstance(metrics, dict) or len(metrics) > most:
            raise Malformed(f"it has metrics on {data[:40]!r}, which is not evaluated")
        for name, value in metrics.items():
            if not METRIC_NAME.fullmatch(name) or isinstance(value, bool) or not isinstance(value, (int, float)):
                raise Malformed(f"its metric {name[:40]!r} is not a name with a number")
    return {data: {name: float(value) for name, value in metrics.items()} for data, metrics in entry.items()}
