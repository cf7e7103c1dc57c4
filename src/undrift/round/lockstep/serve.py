"""Serve many orders at once: training orders in stacks, all others one by one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from undrift.core.determinism import one_thread
from undrift.round.client import ClientRound, answered, serve
from undrift.round.lockstep.lane import Lane
from undrift.round.lockstep.stack import Stack
from undrift.round.orders import Order, Reply
from undrift.round.runtime import Runtime


def groups(runtime: Runtime, orders: Sequence[Order]) -> list[list[int]]:
    """Positions of the orders that are served together: stacks of at most as many bytes as the plan says, largest
    clients first, so that those in a stack are of similar length."""
    lockstep = runtime.lockstep
    if lockstep is None:
        return [[position] for position in range(len(orders))]
    found = [[position] for position, order in enumerate(orders) if order.work != "train"]
    training = [position for position, order in enumerate(orders) if order.work == "train"]
    taken = float("inf")
    for position in sorted(training, key=lambda position: (-orders[position].size, position)):
        cost = lockstep.bytes_of(orders[position].size)
        if taken + cost > lockstep.bytes:
            found.append([])
            taken = 0
        found[-1].append(position)
        taken += cost
    return found


def serve_chunk(runtime: Runtime, chunk: Sequence[tuple[int, Order]]) -> list[tuple[int, Reply]]:
    """What a worker does with the orders of one message: (position, reply) of each."""
    orders = [order for _, order in chunk]
    return [
        (chunk[place][0], reply)
        for places in groups(runtime, orders)
        for place, reply in zip(places, serve_together(runtime, [orders[place] for place in places]))
    ]


def serve_together(runtime: Runtime, orders: Sequence[Order]) -> list[Reply]:
    """One reply per order of a group, in the order of the orders."""
    if len(orders) == 1 or runtime.lockstep is None:
        return [serve(runtime, order) for order in orders]
    lanes: dict[int, Lane] = {}
    replies = [
        answered(runtime, order, partial(prepared, runtime, order, lanes, place)) for place, order in enumerate(orders)
    ]
    began = time.perf_counter()
    try:
        with one_thread():
            train(runtime, list(lanes.values()))
    except Exception:  # alone, the client that raised answers for itself, and the others get the same bits
        lanes, retry = {}, list(lanes)
        for place in retry:
            replies[place] = serve(runtime, orders[place])
    spent, steps = time.perf_counter() - began, sum(lane.stats.steps for lane in lanes.values())
    for place, lane in lanes.items():
        seconds = spent * lane.stats.steps / max(1, steps)
        before = replies[place].seconds
        replies[place] = answered(runtime, orders[place], partial(finished, lane, seconds))
        replies[place].seconds += before + seconds
    return replies


def prepared(runtime: Runtime, order: Order, lanes: dict[int, Lane], place: int) -> Reply:
    """Prepare a client up to its first batch. A client whose parts hold a network of the worker's trains at once: the
    next client needs that network."""
    work = ClientRound(runtime, order)
    reply = work.begin()
    if reply.failure is not None:
        return reply
    if work.data.borrows:
        return alone(work, reply)
    lanes[place] = Lane(work, reply)
    return reply


def alone(work: ClientRound, reply: Reply) -> Reply:
    """A stack of one."""
    lane, began = Lane(work, reply), time.perf_counter()
    train(work.runtime, [lane])
    return finished(lane, time.perf_counter() - began)


def train(runtime: Runtime, lanes: list[Lane]) -> None:
    """The epochs of these clients, and where each ended."""
    assert runtime.lockstep is not None
    if not any(lane.steps for lane in lanes):
        return
    stack = Stack(runtime, runtime.lockstep.network, runtime.lockstep.rows, lanes)
    stack.run()
    for place, lane in enumerate(stack.lanes):
        lane.trained = stack.P[place, : runtime.plan.layout.nP]


def finished(lane: Lane, seconds: float) -> Reply:
    work = lane.work
    if lane.trained is not None:
        work.model.load(lane.trained, work.integers)
    lane.reply.samples_scored_in_epochs = lane.data.samples_scored - lane.scored
    return work.finish(lane.reply, lane, seconds - (lane.data.scoring - lane.scoring))
