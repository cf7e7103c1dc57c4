"""One process, one thread: steppable in a debugger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from undrift.engine.base import Engine
from undrift.local import serve
from undrift.orders import Order, Reply
from undrift.site import Site
from undrift.store.states import States


class Inline(Engine):
    name = "inline"

    def __init__(self, site: Site, states: States, why: str = "asked for") -> None:
        self.site, self.states = site, states
        self.plan_line = f"engine inline: one process, one thread, on {site.model.device} ({why})"

    def work(self, orders: Sequence[Order]) -> Iterable[tuple[int, Reply]]:
        for position, order in enumerate(orders):
            reply = serve(self.site, self.with_state(order))
            order.state = None
            yield position, reply
