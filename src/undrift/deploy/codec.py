"""What crosses the border between server and site: orders and replies as parcels.

Only what is declared travels. The shared entries of a vector do, private ones never; messages by their declarations; of
an answer besides these: sample count, steps, losses, accuracies, seconds. Notes, labels and tracebacks stay at the site.
On arrival everything is checked before it is used: names, types, shapes, sizes, the round, finiteness, the length of an
update.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from undrift.contract.context import Plan
from undrift.contract.declare import Along, Array, Declaration, Malformed, Models, Number, Numbers, read
from undrift.core.vector import Integers
from undrift.deploy.envelope import LONGEST, Envelope, fields
from undrift.round.orders import Failure, Order, Reply

KINDS = ("exception", "nonfinite", "malformed", "empty", "lost")  # of failures that a site may name
METRIC = re.compile(r"[\w:.@-]{1,40}")  # the name of one
MOST_METRICS = 200


# ---- packing -------------------------------------------------------------------------------------------------------


class ArrayPacker:
    """Arrays on their way into a parcel: what is equal is packed once."""

    def __init__(self) -> None:
        self.arrays: dict[str, torch.Tensor] = {}

    def add(self, name: str, tensor: torch.Tensor) -> str:
        tensor = tensor.detach().cpu().contiguous()
        for other, known in self.arrays.items():
            if known.dtype == tensor.dtype and known.shape == tensor.shape and torch.equal(known, tensor):
                return other
        self.arrays[name] = tensor
        return name

    def message(self, name: str, declared: Declaration, message: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
        words: dict[str, Any] = {}
        for key, value in message.items():
            kind, place = declared[key], f"{name}.{key}"
            if isinstance(kind, Number):
                words[key] = float(value)
            elif isinstance(kind, Numbers):
                words[key] = {str(client): float(number) for client, number in value.items()}
            elif isinstance(kind, Models):
                words[key] = {str(c): self.add(f"{place}.{c}", shared(model, plan)) for c, model in value.items()}
            else:
                words[key] = self.add(place, shared(value, plan) if isinstance(kind, Along) else value)
        return words

    def integers(self, name: str, integers: Integers, plan: Plan) -> dict[str, str]:
        return {key: self.add(f"{name}.integers.{key}", value.long())
                for key, value in integers.items() if key not in plan.private_integers}  # fmt: skip


def pack_orders(orders: Sequence[Order], plan: Plan, **facts: Any) -> Envelope:
    """Orders for one site; a judgement that rides along with a training order usually has its vector in common."""
    packer = ArrayPacker()
    words = [
        {
            "work": order.work, "round": order.round, "state_round": order.state_round, "keep_round": order.keep_round,
            "evaluate": bool(order.evaluate_on), "final": order.work == "personalize" and order.round >= plan.rounds,
            "vector": packer.add(f"{order.work}.vector", shared(order.vector, plan)),
            "integers": packer.integers(order.work, order.integers, plan),
            "messages": {part.key: packer.message(f"{order.work}.{part.key}", part.downlink, order.server_messages[part.key], plan)
                     for part in plan.method.parts if part.key in order.server_messages},
        }
        for order in orders
    ]  # fmt: skip
    return Envelope({"kind": "orders", "orders": words, **facts}, packer.arrays)


def pack_replies(orders: Sequence[Order], replies: Sequence[Reply], plan: Plan, site: str) -> Envelope:
    packer = ArrayPacker()
    words = []
    for order, reply in zip(orders, replies, strict=True):
        word: dict[str, Any] = {"work": order.work, "round": reply.round, "seconds": reply.seconds,
                                "metrics": {data: finite_only(found) for data, found in reply.metrics.items()}}  # fmt: skip
        if reply.failure is not None:
            word["failure"] = {"kind": reply.failure.kind, "detail": reply.failure.detail[:LONGEST]}
        elif reply.vector is not None:
            word |= {
                "n": reply.n, "steps": reply.steps, "effective_steps": reply.effective_steps,
                "loss": finite(reply.loss), "last": finite(reply.last),
                "stateful": reply.stateful, "vector": packer.add(f"{order.work}.vector", shared(reply.vector, plan)),
                "integers": packer.integers(order.work, reply.integers, plan),
                "messages": {part.key: packer.message(f"{order.work}.{part.key}", part.uplink, reply.client_messages[part.key], plan)
                             for part in plan.method.parts if part.key in reply.client_messages},
            }  # fmt: skip
        words.append(word)
    return Envelope({"kind": "replies", "site": site, "replies": words}, packer.arrays)


def shared(vector: torch.Tensor, plan: Plan) -> torch.Tensor:
    """The entries of a vector (along P or the model) that may travel."""
    return vector if plan.private is None else vector[~plan.private[: len(vector)]]


def finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def finite_only(found: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in found.items() if math.isfinite(value)}


# ---- unpacking: nothing of what arrives is trusted ------------------------------------------------------------------


class Decoder:
    """Takes a parcel apart for one plan; whatever is not as declared is `Malformed`."""

    def __init__(self, envelope: Envelope, plan: Plan, integers: Integers) -> None:
        self.envelope, self.plan, self.templates = envelope, plan, integers

    def vector(self, reference: Any, base: torch.Tensor) -> torch.Tensor:
        """A vector with the shared entries that arrived and the private ones of `base`."""
        mask = None if self.plan.private is None else self.plan.private[: len(base)]
        found = self.array(reference, torch.float32, (len(base) if mask is None else int((~mask).sum()),))
        if mask is None:
            return found.clone()
        whole = base.clone()
        whole[~mask] = found
        return whole

    def array(self, reference: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        if not isinstance(reference, str) or reference not in self.envelope.arrays:
            raise Malformed(f"the array {reference!r} did not come along")
        found = self.envelope.arrays[reference]
        if found.dtype != dtype:
            raise Malformed(f"{reference} has dtype {str(found.dtype)[6:]} instead of {str(dtype)[6:]}")
        if tuple(found.shape) != shape:
            raise Malformed(f"{reference} has shape {tuple(found.shape)} instead of {shape}")
        return found

    def integers(self, words: Any, private: bool = False) -> Integers:
        """Those that travel; at the roll call, where everything is still Θ⁰'s, the private ones too."""
        kept = set() if private else self.plan.private_integers
        expected = {name: value for name, value in self.templates.items() if name not in kept}
        if not isinstance(words, dict) or set(words) != set(expected):
            raise Malformed("the integer buffers are not those of the model")
        return {name: self.array(words[name], torch.int64, tuple(value.shape)).to(value.dtype).clone()
                for name, value in expected.items()}  # fmt: skip

    def message(self, declared: Declaration, words: Any, base: torch.Tensor) -> dict[str, Any]:
        if not isinstance(words, dict) or set(words) - set(declared):
            raise Malformed(f"the message has names that are not declared (declared: {sorted(declared)})")
        nP = self.plan.layout.nP
        message: dict[str, Any] = {}
        for key, value in words.items():
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


def by_client(words: Any) -> dict[int, Any]:
    if not isinstance(words, dict) or not all(key.isdigit() for key in words):
        raise Malformed("an entry is not by client number")
    return {int(key): value for key, value in words.items()}


NOTHING = type(None)
ORDER = {
    "work": (str,), "round": (int,), "state_round": (int, NOTHING), "keep_round": (int, NOTHING), "evaluate": (bool,),
    "final": (bool,), "vector": (str,), "integers": (dict,), "messages": (dict,),
}  # fmt: skip
REPLY = {
    "work": (str,), "round": (int,), "seconds": (float, int), "metrics": (dict,), "failure": (dict,), "n": (int,),
    "steps": (int,), "effective_steps": (float, int, NOTHING), "loss": (float, NOTHING), "last": (float, NOTHING), "stateful": (bool,),
    "vector": (str,), "integers": (dict,), "messages": (dict,),
}  # fmt: skip
TRAINED = ("n", "steps", "effective_steps", "loss", "last", "stateful", "vector", "integers", "messages")


def unpack_orders(
    envelope: Envelope, plan: Plan, initial: torch.Tensor, integers: Integers, client: int
) -> list[Order]:
    """At the site. Private entries are Θ⁰'s until the client's own take their place."""
    reader, orders = Decoder(envelope, plan, integers), []
    for words in envelope.head["orders"]:
        fields(words, ORDER)
        messages = {
            part.key: reader.message(part.downlink, words["messages"][part.key], initial)
            for part in plan.method.parts if part.key in words["messages"]
        }  # fmt: skip
        orders.append(
            Order(words["work"], words["round"], client, reader.vector(words["vector"], initial),
                  {**integers, **reader.integers(words["integers"])}, messages, words["state_round"], words["keep_round"],
                  evaluate_on=("own",) if words["evaluate"] else (), data="final" if words["final"] else "global")
        )  # fmt: skip
    return orders


def unpack_replies(
    envelope: Envelope, orders: Sequence[Order], plan: Plan, integers: Integers, most: int, norm: float
) -> list[Reply]:
    """At the server, in the order of the orders. `most` is the sample count of the roll call."""
    fields(envelope.head, {"kind": (str,), "site": (str,), "replies": (list,)})
    words = envelope.head["replies"]
    if len(words) != len(orders):
        raise Malformed(f"{len(words)} answers came to {len(orders)} orders")
    reader = Decoder(envelope, plan, integers)
    return [unpack_reply(reader, word, order, most, norm) for word, order in zip(words, orders, strict=True)]


def unpack_reply(reader: Decoder, words: Any, order: Order, most: int, norm: float) -> Reply:
    plan = reader.plan
    fields(words, REPLY, optional=("failure", *TRAINED))
    if words["work"] != order.work or words["round"] != order.round:
        raise Malformed(
            f"the answer is for {words['work']} in round {words['round']}, not {order.work} in {order.round}"
        )
    reply = Reply(order.round, order.client, seconds=float(words["seconds"]), metrics=checked_metrics(words["metrics"]))
    if "failure" in words:
        failure = fields(words["failure"], {"kind": (str,), "detail": (str,)})
        kind = failure["kind"] if failure["kind"] in KINDS else "malformed"
        reply.failure = Failure(kind, failure["detail"][:LONGEST])
        return reply
    if order.work != "train":
        return reply
    fields(words, {name: REPLY[name] for name in (*TRAINED, "work", "round", "seconds", "metrics")})
    if not 0 <= words["n"] <= most or words["steps"] < 0:
        raise Malformed(
            f"it counts {words['n']} samples and {words['steps']} steps; at the roll call there were {most}"
        )
    reply.n, reply.steps, reply.stateful = words["n"], words["steps"], words["stateful"]
    reply.effective_steps = words["effective_steps"]
    reply.loss, reply.last = (math.nan if words[name] is None else words[name] for name in ("loss", "last"))
    reply.integers = {**order.integers, **reader.integers(words["integers"])}
    reply.vector = reader.vector(words["vector"], order.vector)
    longest = norm * max(1.0, length(order.vector))
    bounded("the update", reply.vector - order.vector, longest)
    if strange := sorted(set(words["messages"]) - {part.key for part in plan.method.parts}):
        raise Malformed(f"it has a message of {strange[0]!r}, which is no part of the method")
    conceal: Callable[[torch.Tensor], torch.Tensor] = lambda vector: vector  # noqa: E731 - private entries are ours already
    for part in plan.method.parts:
        if part.key in words["messages"]:
            message = reader.message(part.uplink, words["messages"][part.key], order.vector)
            asked = order.server_messages.get(part.key, {})
            reply.client_messages[part.key] = read(part.key, part.uplink, message, plan, conceal, asked)
            for name, value in reply.client_messages[part.key].items():
                if isinstance(value, torch.Tensor):  # at most a sum of gradients: an update over the learning rate
                    bounded(f"{part.key}'s {name!r}", value, longest / min(1.0, plan.rate(order.round)))
    return reply


def checked_metrics(words: Any) -> dict[str, dict[str, float]]:
    for data, found in words.items():
        if data not in ("own", "G") or not isinstance(found, dict) or len(found) > MOST_METRICS:
            raise Malformed(f"it evaluates on {data[:40]!r}")
        for name, value in found.items():
            if not METRIC.fullmatch(name) or isinstance(value, bool) or not isinstance(value, (int, float)):
                raise Malformed(f"it judges by {name[:40]!r}")
    return {data: {name: float(value) for name, value in found.items()} for data, found in words.items()}


def bounded(what: str, vector: torch.Tensor, longest: float) -> None:
    """Non-finite values are left to the quarantine, which names them."""
    size = length(vector)
    if math.isfinite(size) and size > longest:
        raise Malformed(f"{what} has the norm {size:.3g}; at most {longest:.3g} is accepted")


def length(vector: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(torch.nan_to_num(vector, posinf=0.0, neginf=0.0).double()))
