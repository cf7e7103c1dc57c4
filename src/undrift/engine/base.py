"""What all engines of a simulation share: the store's states go out with the orders and come back with the replies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from undrift.orders import Order, Reply
from undrift.store.states import States


class Engine:
    """`map` is all that the loop knows; `work` is all that an engine has to write."""

    name = ""
    plan_line = ""  # what was chosen, and why
    states: States

    def open(self, site: Any, states: States) -> Engine:
        """Take up another run, where an engine can be lent to several."""
        raise NotImplementedError

    def map(self, orders: Sequence[Order]) -> list[Reply]:
        """One reply per order, in their order. A client's new state is kept as soon as the client has answered, as a
        site would do; whether it counts is decided by the server, which may never hear of it."""
        replies: list[Reply | None] = [None] * len(orders)
        for position, reply in self.work(orders):
            if reply.stateful and reply.failure is None:
                order = orders[position]
                self.states.put("state", reply.client, reply.round, reply.state)
                if order.keep_round is not None:
                    self.states.drop_below("state", reply.client, order.keep_round)
            reply.state = None
            replies[position] = reply
        return [reply for reply in replies if reply is not None]

    def with_state(self, order: Order) -> Order:
        """The order with the committed version of its client's state."""
        if order.work != "judge" and order.state_round is not None:
            order.state = self.states.get("state", order.client, order.state_round)
        return order

    def work(self, orders: Sequence[Order]) -> Iterable[tuple[int, Reply]]:
        """(position, reply) in any order; `with_state` before an order leaves."""
        raise NotImplementedError

    def ready(self) -> None:
        """Wait until orders would be worked on at once: what start-up costs does not count as a round."""

    def events(self) -> list[tuple[str, str]]:
        """(kind, sentence) of what went wrong with the engine itself since the last call."""
        return []

    def close(self) -> None:
        """Let go of workers and files."""
