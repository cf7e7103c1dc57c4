"""Injected faults, seeded per client and round: a client does not answer, is slow, or sends a broken update.

    drop(rate)             no answer (the client has trained and stored its state, but its reply is lost)
    slow(rate, share)      only a share of the steps
    nan(rate)              a vector that is not finite
    flip(rate)             the update with its sign flipped
    scale(rate, factor)    the update times a factor

`unit="round"` (the default) draws for each client and round. `unit="client"` breaks a fixed share of the clients in
every round. Label noise is not a fault: it belongs to the federation (`noise.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch

from undrift.contract.context import Plan
from undrift.core.errors import BadRequest
from undrift.core.streams import numpy_stream
from undrift.round.orders import Order, Reply

Unit = Literal["round", "client"]


class Fault:
    """`order` may change the order sent to a client, `reply` its reply. `hits` says which clients are affected."""

    rate: float
    unit: Unit

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise BadRequest(f"{type(self).__name__.lower()}(rate) needs 0 ≤ rate ≤ 1, not {self.rate}")
        if self.unit not in ("round", "client"):
            raise BadRequest(f"unit is round or client, not {self.unit}")

    def hits(self, plan: Plan, round: int, client: int) -> bool:
        purpose = f"fault/{type(self).__name__.lower()}"
        if self.unit == "round":
            return bool(numpy_stream(plan.seed, purpose, round, client).random() < self.rate)
        count = math.floor(self.rate * plan.clients + 0.5)
        return client in numpy_stream(plan.seed, purpose).permutation(plan.clients)[:count]

    def order(self, order: Order, plan: Plan) -> Order:
        return order

    def reply(self, reply: Reply, order: Order, plan: Plan) -> Reply:
        return reply


def scaled(reply: Reply, order: Order, plan: Plan, factor: float) -> Reply:
    """The reply with its update times a factor. Only parameters are scaled, BatchNorm statistics are not."""
    if reply.vector is None:
        return reply
    vector, nP = reply.vector.clone(), plan.layout.nP
    sent = order.vector[:nP]
    vector[:nP] = sent + factor * (vector[:nP] - sent)
    return replace(reply, vector=vector)


@dataclass(frozen=True)
class Drop(Fault):
    rate: float
    unit: Unit = "round"

    def reply(self, reply: Reply, order: Order, plan: Plan) -> Reply:
        return reply.failed("dropped", "the client did not answer")


@dataclass(frozen=True)
class Slow(Fault):
    rate: float
    share: float = 0.5
    unit: Unit = "round"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise BadRequest(f"slow(rate, share) needs 0 < share ≤ 1, not {self.share}")

    def order(self, order: Order, plan: Plan) -> Order:
        steps = plan.epochs * -(-order.size // plan.batch)
        return replace(order, budget=max(1, math.floor(self.share * steps)))


@dataclass(frozen=True)
class Nan(Fault):
    rate: float
    unit: Unit = "round"

    def reply(self, reply: Reply, order: Order, plan: Plan) -> Reply:
        return reply if reply.vector is None else replace(reply, vector=torch.full_like(reply.vector, math.nan))


@dataclass(frozen=True)
class Flip(Fault):
    rate: float
    unit: Unit = "round"

    def reply(self, reply: Reply, order: Order, plan: Plan) -> Reply:
        return scaled(reply, order, plan, -1.0)


@dataclass(frozen=True)
class Scale(Fault):
    rate: float
    factor: float = 10.0
    unit: Unit = "round"

    def reply(self, reply: Reply, order: Order, plan: Plan) -> Reply:
        return scaled(reply, order, plan, self.factor)


drop, slow, nan, flip, scale = Drop, Slow, Nan, Flip, Scale
__all__ = ["drop", "flip", "nan", "scale", "slow"]
