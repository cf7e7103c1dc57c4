"""A round's replies compared with each other: a site whose update is much longer than the others' is left out.

The bound `norm` is relative to the model, so it must be wide. This one is relative to the other sites. The reference is
the median over the others, which less than half of them cannot move far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median

from undrift.contract.context import Plan
from undrift.contract.declare import Along, Number
from undrift.deploy.claims import norm_of
from undrift.round.orders import Order, Reply

FLOOR = 0.1  # of the model's norm: differences between lengths below it say nothing
MOST_STEPS = 100  # a site with more steps may go further, by the root of the ratio of steps, up to this ratio


def outliers(orders: Mapping[int, Order], replies: Mapping[int, Reply], plan: Plan, factor: float) -> dict[int, str]:
    """A sentence for each client whose update, declared vector or number without a range is more than `factor` times
    the median of the others."""
    measured = {client: lengths(orders[client], reply, plan) for client, reply in replies.items()}
    found: dict[int, str] = {}
    for client, own in measured.items():
        for what, (length, steps, floor) in own.items():
            others = [measured[other][what] for other in measured if other != client and what in measured[other]]
            if not others:
                continue
            usual = max(floor, median(size * further(steps, theirs) for size, theirs, _ in others))
            if length > factor * usual:
                found.setdefault(
                    client, f"{what} is {length:.3g} long, more than {factor:g} times the {usual:.3g} of the others"
                )
    return found


def further(steps: int, theirs: int) -> float:
    """How much further a site may go because it made more steps than another one."""
    return math.sqrt(min(max(1.0, steps / max(1, theirs)), MOST_STEPS))


def lengths(order: Order, reply: Reply, plan: Plan) -> dict[str, tuple[float, int, float]]:
    """By name: the length of what a site sent, the steps it grows with (1: it does not), and the least that counts."""
    assert reply.vector is not None
    floor = FLOOR * max(1.0, norm_of(order.vector))
    found = {"its update": (norm_of(reply.vector - order.vector), reply.steps, floor)}
    for part in plan.method.parts:
        for name, kind in part.uplink.items():
            value, what = reply.client_messages.get(part.key, {}).get(name), f"{part.key}'s {name!r}"
            if isinstance(kind, Along) and value is not None:
                base = order.vector if kind.what == "model" else 0.0
                found[what] = (norm_of(value - base), 1, floor)
            elif isinstance(kind, Number) and not kind.bounded and value is not None:
                found[what] = (abs(value), 1, 1.0)
    return found
