"""What the loop needs of an engine: one reply per order. The engines themselves are in `engine/` and `deploy/`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from undrift.contract.context import Tree
from undrift.round import client_state
from undrift.round.orders import Order, Reply
from undrift.store.states import States

if TYPE_CHECKING:
    from undrift.round.runtime import Runtime


class Engine:
    """The loop calls `map`; an engine defines `work`."""

    name = ""
    trusted = True  # replies come from our own processes
    plan_line = ""  # what was chosen, and why
    states: States
    elsewhere = 0.0  # seconds so far in which it worked for other runs

    def open(self, runtime: Runtime, states: States) -> Engine:
        """Take up another run, where an engine can be lent to several."""
        raise NotImplementedError

    def map(self, orders: Sequence[Order]) -> list[Reply]:
        """One reply per order, in the order of the orders."""
        replies: list[Reply | None] = [None] * len(orders)
        for position, reply in self.work(orders):
            state = reply.state
            client_state.keep(self.states, orders[position], reply)
            self.release(reply, state)
            replies[position] = reply
        return [reply for reply in replies if reply is not None]

    def with_state(self, order: Order) -> Order:
        """The order with the committed version of its client's state."""
        return client_state.fetch(self.states, order)

    def work(self, orders: Sequence[Order]) -> Iterable[tuple[int, Reply]]:
        """(position, reply) in any order; call `with_state` before an order leaves."""
        raise NotImplementedError

    def release(self, reply: Reply, state: Tree) -> None:
        """The state of a reply is in the store: its memory may be used again. The rest of the reply is still needed."""

    def aggregated(self, replies: Sequence[Reply]) -> None:
        """The round is aggregated: the memory of all vectors and messages of its replies may be used again."""

    def ready(self) -> None:
        """Wait until orders would be worked on at once: start-up does not count as part of a round."""

    def events(self) -> list[tuple[str, str]]:
        """(kind, sentence) of what went wrong with the engine itself since the last call."""
        return []

    def close(self) -> None:
        """Release workers and files."""
