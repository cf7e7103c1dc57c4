"""What engines with several workers share: the choice of a worker, and redoing the orders of one that died."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Any

from undrift.core.errors import RunFailed
from undrift.round.engine import Engine
from undrift.round.orders import Order, Reply
from undrift.round.runtime import Runtime

TRIES = 3  # of one order, before the run fails
AHEAD = 2  # chunks a worker may have, so that it never waits for the next one
STACKED = 64  # clients in a chunk that is trained in stacks, fewer where their models are larger than a stack
STEP_COST = (
    5  # what a step of a stack costs beside its clients, in clients: it is paid as long as the largest one trains
)
CLIENT_COST = 6  # what a client of a stack costs beside its steps, in steps
SHRINK = 4  # a chunk is a worker's share of the remaining work, divided by this


class Pool(Engine):
    """A subclass defines how orders are sent, how replies arrive and how a dead worker is replaced. A worker has
    `chunks` (the positions of its orders by the chunk's key) and `given` (how many samples it got in this exchange)."""

    runtime: Runtime
    workers: list[Any]
    _events: list[tuple[str, str]]  # (kind, sentence) since the last call of `events`

    def events(self) -> list[tuple[str, str]]:
        events, self._events = self._events, []
        return events

    def begin(self, orders: Sequence[Order]) -> None:
        """Begin an exchange. Called before its first chunk is sent."""

    def send(self, worker: Any, orders: Sequence[Order], positions: list[int]) -> None:
        """Send a worker the orders at these positions (`with_state`), and note them in its `chunks`."""
        raise NotImplementedError

    def answers(self) -> Iterable[tuple[Any, list[tuple[int, Reply]] | None]]:
        """Wait for at least one worker. Yields (worker, its replies), or (worker, None) if the worker died."""
        raise NotImplementedError

    def replace(self, worker: Any, orders: Sequence[Order]) -> list[list[int]]:
        """Replace a dead worker and return the chunks that are lost."""
        raise NotImplementedError

    def work(self, orders: Sequence[Order]) -> Iterator[tuple[int, Reply]]:
        self.begin(orders)
        for worker in self.workers:
            worker.given = 0
        queue = deque(self.chunks(orders))
        tries = [0] * len(orders)
        left = len(orders)
        while left:
            while queue and (free := self._next(len(queue))):
                positions = queue.popleft()
                free.given += sum(orders[position].size for position in positions)
                self.send(free, orders, positions)
            for worker, answer in self.answers():
                for position, reply in answer or ():
                    left -= 1
                    yield position, reply
                if answer is None:
                    for position in (p for positions in self.replace(worker, orders) for p in positions):
                        tries[position] += 1
                        if tries[position] >= TRIES:
                            raise RunFailed(
                                f"workers died {TRIES} times over the work of client {orders[position].client} in "
                                f"round {orders[position].round}; `undrift resume` continues from the last checkpoint"
                            )
                        queue.appendleft([position])

    def chunks(self, orders: Sequence[Order]) -> list[list[int]]:
        """Which orders travel together."""
        workers = max(len(self.workers), 1)
        if self.runtime.lockstep is None or any(order.work != "train" for order in orders):
            return chunked(orders, workers)
        plan = self.runtime.plan
        most = max(1, min(STACKED, plan.lockstep // (4 * plan.layout.n)))
        return dealt(orders, workers, most, CLIENT_COST * plan.batch / plan.epochs)

    def _next(self, queued: int) -> Any:
        """The worker that gets the next chunk: an idle one, else, ahead of time, the one with the fewest samples so far
        (by sizes it will be free first). The last chunks are not sent ahead, because sizes predict time roughly."""
        idle = [worker for worker in self.workers if not worker.chunks]
        worker = min(idle or self.workers, key=lambda worker: worker.given, default=None)
        if worker is None or idle:
            return worker
        return worker if queued > len(self.workers) and len(worker.chunks) < AHEAD else None


def chunked(orders: Sequence[Any], workers: int) -> list[list[int]]:
    """Positions of the orders, largest first, in chunks that shrink with the remaining work: sending a small order
    alone costs more than its work, and large chunks at the end would leave the other workers idle."""
    queue = sorted(range(len(orders)), key=lambda position: (-orders[position].size, position))
    left = sum(order.size for order in orders)
    chunks: list[list[int]] = []
    goal = cost = 0.0
    for position in queue:
        size = orders[position].size
        if not chunks or cost + size > goal:
            left -= cost
            chunks.append([])
            goal, cost = left / (workers * SHRINK), 0.0
        chunks[-1].append(position)
        cost += size
    return chunks


def dealt(orders: Sequence[Any], workers: int, most: int = STACKED, beside: float = 0.0) -> list[list[int]]:
    """Positions of orders that are trained in stacks, at most `most` in a chunk, so that all chunks take equally long: the
    largest client first, each to the chunk that would be done first. There are no more chunks than keep the workers
    busy, because a stack gains with every client in it. `beside`: what a client costs beside its steps, in samples."""
    queue = sorted(range(len(orders)), key=lambda position: (-orders[position].size, position))
    count = min(len(queue), workers * -(-len(queue) // (workers * most)))
    chunks = [[position] for position in queue[:count]]
    costs = [((1 + STEP_COST) * orders[position].size + beside, place) for place, position in enumerate(queue[:count])]
    heapify(costs)
    for position in queue[count:]:
        while len(chunks[(first := costs[0])[1]]) >= most:
            heappop(costs)
        cost, place = first
        chunks[place].append(position)
        heapreplace(costs, (cost + orders[position].size + beside, place))
    return chunks


def lost_clients(lost: Sequence[Sequence[int]], orders: Sequence[Order]) -> str:
    """The clients whose work is redone, as part of a sentence."""
    clients = [orders[p].client for chunk in lost for p in chunk if orders[p].work != "evaluate"]
    return f" over client{'s' * (len(clients) > 1)} {', '.join(map(str, clients[:5]))}" if clients else ""
