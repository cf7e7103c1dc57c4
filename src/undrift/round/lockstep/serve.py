"""Serve many orders at once: training orders in stacks, all others one by one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from undrift.core.determinism import put_back
from undrift.round.client import ClientRound, answered, serve
from undrift.round.lockstep.lane import Lane
from undrift.round.lockstep.stack import Stack
from undrift.round.orders import Order, Reply
from undrift.round.runtime import Runtime

Work = tuple[Runtime, Order]  # orders of several runs can be served together, each with its own runtime


def groups(works: Sequence[Work]) -> list[list[int]]:
    """Positions of the orders that are served together: stacks of at most as many bytes as the plan says, of clients whose
    steps are alike, largest first, so that those in a stack are of similar length."""
    found, stacks = list[list[int]](), dict[str, list[int]]()
    for position, (runtime, order) in enumerate(works):
        if runtime.lockstep is None or order.work != "train":
            found.append([position])
        else:
            stacks.setdefault(runtime.lockstep.alike, []).append(position)
    for positions in stacks.values():
        found += cut_by_bytes(works, sorted(positions, key=lambda position: (-works[position][1].size, position)))
    return found


def cut_by_bytes(works: Sequence[Work], positions: Sequence[int]) -> list[list[int]]:
    found, taken = list[list[int]](), float("inf")
    for position in positions:
        runtime, order = works[position]
        assert runtime.lockstep is not None
        cost = runtime.lockstep.bytes_of(order.size)
        if taken + cost > runtime.lockstep.bytes:
            found.append([])
            taken = 0
        found[-1].append(position)
        taken += cost
    return found


def serve_chunk(runtime: Runtime, chunk: Sequence[tuple[int, Order]]) -> list[tuple[int, Reply]]:
    """What a worker does with the orders of one message: (position, reply) of each."""
    replies = serve_all([(runtime, order) for _, order in chunk])
    return [(position, reply) for (position, _), reply in zip(chunk, replies)]


def serve_all(works: Sequence[Work]) -> list[Reply]:
    """One reply per order, in the order of the orders."""
    found = {
        position: reply
        for positions in groups(works)
        for position, reply in zip(positions, serve_together([works[position] for position in positions]))
    }
    return [found[position] for position in range(len(works))]


def serve_together(works: Sequence[Work]) -> list[Reply]:
    """One reply per order of a group, in the order of the orders."""
    if len(works) == 1:
        return [serve(*works[0])]
    with put_back():
        return serve_stack(works)


def serve_stack(works: Sequence[Work]) -> list[Reply]:
    """The clients of a stack: each is prepared, all train, each finishes."""
    lanes: dict[int, Lane] = {}
    replies = [answered(*work, partial(prepared, *work, lanes, place)) for place, work in enumerate(works)]
    began = time.perf_counter()
    try:
        train(list(lanes.values()))
    except Exception:  # alone, the client that raised answers for itself, and the others get the same bits
        lanes, retry = {}, list(lanes)
        for place in retry:
            replies[place] = serve(*works[place])
    spent, steps = time.perf_counter() - began, sum(lane.stats.steps for lane in lanes.values())
    for place, lane in lanes.items():
        seconds = spent * lane.stats.steps / max(1, steps)
        before = replies[place].seconds
        replies[place] = answered(*works[place], partial(finished, lane, seconds))
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
    train([lane])
    return finished(lane, time.perf_counter() - began)


def train(lanes: list[Lane]) -> None:
    """The epochs of these clients, and where each ended."""
    if not any(lane.steps for lane in lanes):
        return
    runtime = lanes[0].work.runtime  # the others are alike in what a stack needs
    assert runtime.lockstep is not None
    Stack(runtime, runtime.lockstep.network, runtime.lockstep.rows, lanes).run()


def finished(lane: Lane, seconds: float) -> Reply:
    work = lane.work
    if lane.trained is not None:
        work.model.load(lane.trained, work.integers)
    lane.reply.samples_scored_in_epochs = lane.data.samples_scored - lane.scored
    return work.finish(lane.reply, lane, seconds - (lane.data.scoring - lane.scoring))
