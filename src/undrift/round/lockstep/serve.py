"""Serve many orders at once: training orders in stacks, all others one by one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

import torch

from undrift.core.determinism import put_back
from undrift.evaluate.client import evaluated_on, mixed
from undrift.round.client import ClientRound, answered, serve
from undrift.round.lockstep.lane import Lane
from undrift.round.lockstep.passes import passes
from undrift.round.lockstep.stack import Stack
from undrift.round.orders import Order, Reply
from undrift.round.runtime import Runtime

Work = tuple[Runtime, Order]  # orders of several runs can be served together, each with its own runtime

STACKED_WORKS = ("train", "personalize")


def groups(works: Sequence[Work]) -> list[list[int]]:
    """Positions of the orders that are served together: stacks of at most as many bytes as the plan says, of clients whose
    steps are alike, largest first, so that those in a stack are of similar length."""
    found, stacks = list[list[int]](), dict[str, list[int]]()
    for position, (runtime, order) in enumerate(works):
        if runtime.lockstep is None or order.work not in STACKED_WORKS:
            found.append([position])
        else:
            stacks.setdefault(order.work + runtime.lockstep.alike, []).append(position)
    for positions in stacks.values():
        found += cut_by_bytes(works, sorted(positions, key=lambda position: (-works[position][1].size, position)))
    return found


def cut_by_bytes(works: Sequence[Work], positions: Sequence[int]) -> list[list[int]]:
    """`positions`: largest first. Everything that a stack lays out by steps is as long as its largest client."""
    found, taken, longest = list[list[int]](), float("inf"), 0
    for position in positions:
        runtime, order = works[position]
        assert runtime.lockstep is not None
        if taken + runtime.lockstep.bytes_of(order.size, longest) > runtime.lockstep.bytes:
            found.append([])
            taken, longest = 0, order.size
        found[-1].append(position)
        taken += runtime.lockstep.bytes_of(order.size, longest)
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
        return serve_stack(works) if works[0][1].work == "train" else serve_personal(works)


def serve_personal(works: Sequence[Work]) -> list[Reply]:
    """Each client says what it would use (stage L1), then all are evaluated."""
    clients: dict[int, ClientRound] = {}

    def asked(place: int, runtime: Runtime, order: Order) -> Reply:
        work = ClientRound(runtime, order)
        work.together = True
        reply = work.personalized()
        clients[place] = work
        return reply

    replies = [answered(*work, partial(asked, place, *work)) for place, work in enumerate(works)]
    evaluate_together(works, clients, replies)
    return replies


def evaluate_together(works: Sequence[Work], clients: Mapping[int, ClientRound], replies: list[Reply]) -> None:
    """The metrics of all clients that wait for them."""
    waiting = {place: work for place, work in clients.items() if work.held and replies[place].failure is None}
    began = time.perf_counter()
    ready = outputs_of(list(waiting.values()))
    share = (time.perf_counter() - began) / max(1, len(waiting))
    for (place, work), output in zip(waiting.items(), ready):
        reply, seconds = replies[place], replies[place].seconds
        reply.spent["judging"] = share
        replies[place] = answered(*works[place], partial(work.evaluated, reply, output))
        replies[place].seconds += seconds + share


def outputs_of(clients: Sequence[ClientRound]) -> Sequence[torch.Tensor | None]:
    """The mixed outputs of what each client uses. Of those that cannot be stacked each finds out alone."""
    if not clients:
        return []
    try:
        asked = [(vector, evaluated_on(work.runtime, work.order)) for work in clients for _, vector in work.held]
        found = iter(passes(clients[0].runtime, asked))  # the others are alike in what a pass needs
        return [mixed(work.held, [next(found)[0] for _ in work.held]) for work in clients]
    except Exception:
        return [None] * len(clients)


def score_ahead(clients: Sequence[ClientRound], role: str) -> None:
    """Passes over the clients' training data that hooks will ask for. Where one fails, each client finds out alone."""
    wanted = [
        work for work in clients if any(role in part.passes(work.order.round) for part in work.plan.method.at_client)
    ]
    if not wanted:
        return
    began, runtime = time.perf_counter(), wanted[0].runtime
    try:
        asked = [(work.trained if role == "trained" else work.received, work.data.x) for work in wanted]
        outputs = passes(runtime, asked, runtime.wants("features"))
    except Exception:
        return
    for work, found in zip(wanted, outputs):
        work.data.ahead[role] = found
        work.data.scoring += (time.perf_counter() - began) / len(wanted)


def serve_stack(works: Sequence[Work]) -> list[Reply]:
    """The clients of a stack: each is prepared, all train, each finishes, all are evaluated."""
    lanes, clients, draws = dict[int, Lane](), dict[int, ClientRound](), bool(works[0][0].plan.method.at_client)
    replies = [
        answered(*work, partial(opened, *work, clients, lanes, place), draws) for place, work in enumerate(works)
    ]
    score_ahead(list(clients.values()), "received")
    for place, work in clients.items():
        seconds = replies[place].seconds
        replies[place] = answered(*works[place], partial(prepared, work, replies[place], lanes, place))
        replies[place].seconds += seconds
    began = time.perf_counter()
    try:
        train(list(lanes.values()))
        score_ahead([lane.work for lane in lanes.values()], "trained")
    except Exception:  # alone, the client that raised answers for itself, and the others get the same bits
        lanes, retry = {}, list(lanes)
        for place in retry:
            replies[place] = serve(*works[place])
    spent, steps = time.perf_counter() - began, sum(lane.stats.steps for lane in lanes.values())
    for place, lane in lanes.items():
        seconds = spent * lane.stats.steps / max(1, steps)
        before = replies[place].seconds
        replies[place] = answered(*works[place], partial(finished, lane, seconds), draws)
        replies[place].seconds += before + seconds
    evaluate_together(works, {place: lane.work for place, lane in lanes.items()}, replies)
    return replies


def opened(
    runtime: Runtime, order: Order, clients: dict[int, ClientRound], lanes: dict[int, Lane], place: int
) -> Reply:
    """A client up to where its training begins, or where no part has a say, up to its first batch. A client whose parts
    hold a network of the worker's trains at once: the next client needs that network."""
    work = ClientRound(runtime, order)
    reply = work.opened()
    if reply.failure is not None:
        return reply
    if not work.data.in_stack:
        work.before_training()
        return work.train_alone(reply)
    if not work.parts:
        return prepared(work, reply, lanes, place)
    if work.data.borrows:
        work.before_training()
        return alone(work, reply)
    clients[place] = work
    return reply


def prepared(work: ClientRound, reply: Reply, lanes: dict[int, Lane], place: int) -> Reply:
    """Prepare a client up to its first batch."""
    work.before_training()
    if work.data.borrows:
        return alone(work, reply)
    work.together = True
    lanes[place] = Lane(work, reply)
    return reply


def alone(work: ClientRound, reply: Reply) -> Reply:
    """A stack of one."""
    lane, began = Lane(work, reply), time.perf_counter()
    train([lane])
    return finished(lane, time.perf_counter() - began)


def train(lanes: list[Lane]) -> None:
    """The epochs of these clients, and where each ended."""
    for lane in lanes:
        lane.work.trained = lane.work.start
    if not any(lane.steps for lane in lanes):
        return
    runtime = lanes[0].work.runtime  # the others are alike in what a stack needs
    assert runtime.lockstep is not None
    Stack(runtime, runtime.lockstep.network, runtime.lockstep.rows, lanes).run()


def finished(lane: Lane, seconds: float) -> Reply:
    work = lane.work
    if work.parts or work.integers:
        work.model.load(work.trained, lane.integers())
    lane.reply.samples_scored_in_epochs = lane.data.samples_scored - lane.scored
    return work.finish(lane.reply, lane, seconds - (lane.data.scoring - lane.scoring))
