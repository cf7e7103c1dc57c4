"""The inline engine: one process, one thread. A debugger can step through a client's round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from undrift.round.engine import Engine
from undrift.round.lockstep.serve import groups, serve_together
from undrift.round.orders import Order, Reply
from undrift.round.runtime import Runtime
from undrift.store.states import States


class Inline(Engine):
    name = "inline"

    def __init__(self, runtime: Runtime, states: States, why: str = "asked for") -> None:
        self.runtime, self.states = runtime, states
        self.plan_line = f"engine inline: one process, one thread, on {runtime.model.device} ({why})"

    def work(self, orders: Sequence[Order]) -> Iterable[tuple[int, Reply]]:
        for positions in groups([(self.runtime, order) for order in orders]):
            together = [(self.runtime, self.with_state(orders[position])) for position in positions]
            yield from zip(positions, serve_together(together))
