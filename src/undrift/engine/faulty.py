"""An engine that injects faults (`federation/environment/faults.py`) into the orders and replies of another engine."""

from __future__ import annotations

from collections.abc import Sequence

from undrift.contract.context import Plan
from undrift.federation.environment.faults import Fault
from undrift.round.engine import Engine
from undrift.round.orders import Order, Reply


class Faulty(Engine):
    def __init__(self, inner: Engine, faults: Sequence[Fault], plan: Plan) -> None:
        self.inner, self.faults, self.plan = inner, faults, plan
        self.states, self.name, self.plan_line = inner.states, inner.name, inner.plan_line

    def map(self, orders: Sequence[Order]) -> list[Reply]:
        hit = {
            order.client: [fault for fault in self.faults if fault.hits(self.plan, order.round, order.client)]
            for order in orders
            if order.work == "train"
        }
        sent = []
        for order in orders:
            for fault in hit.get(order.client, ()):
                order = fault.order(order, self.plan)
            sent.append(order)
        replies = []
        for order, reply in zip(sent, self.inner.map(sent), strict=True):
            for fault in hit.get(order.client, ()):
                reply = fault.reply(reply, order, self.plan)
            replies.append(reply)
        return replies

    @property
    def elsewhere(self) -> float:  # type: ignore[override]
        return self.inner.elsewhere

    def ready(self) -> None:
        self.inner.ready()

    def events(self) -> list[tuple[str, str]]:
        return self.inner.events()

    def close(self) -> None:
        self.inner.close()
