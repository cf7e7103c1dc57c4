"""What engines with several workers share: who gets which work next, and what becomes of the work of one that died."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from undrift.core.errors import RunFailed
from undrift.round.engine import Engine
from undrift.round.orders import Order, Reply

TRIES = 3  # for one order, before the run gives up
AHEAD = 2  # chunks a worker has at hand, so that it never waits for the next
SHRINK = 4  # a piece is this part of a worker's share of what is left


class Pool(Engine):
    """An engine writes how work is sent, how answers come in and how the dead are replaced. A worker has `chunks`, the
    positions it is working on by whatever names the piece, and `given`, how many samples it got in this exchange."""

    workers: list[Any]
    _events: list[tuple[str, str]]  # (kind, sentence) since they were last asked for

    def events(self) -> list[tuple[str, str]]:
        said, self._events = self._events, []
        return said

    def begin(self, orders: Sequence[Order]) -> None:
        """A new exchange: called before its first piece is sent."""

    def send(self, worker: Any, orders: Sequence[Order], positions: list[int]) -> None:
        """Give a worker the orders at these positions (`with_state`), and write them down in its `chunks`."""
        raise NotImplementedError

    def answers(self) -> Iterable[tuple[Any, list[tuple[int, Reply]] | None]]:
        """Wait for somebody; (worker, what it answered), and None for one that died."""
        raise NotImplementedError

    def replace(self, worker: Any, orders: Sequence[Order]) -> list[list[int]]:
        """Take a dead worker out and call for another; returns the pieces that are lost."""
        raise NotImplementedError

    def work(self, orders: Sequence[Order]) -> Iterator[tuple[int, Reply]]:
        self.begin(orders)
        for worker in self.workers:
            worker.given = 0
        queue = deque(chunked(orders, max(len(self.workers), 1)))
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
                                f"round {orders[position].round}; `undrift resume` goes on from the last checkpoint"
                            )
                        queue.appendleft([position])

    def _next(self, queued: int) -> Any:
        """Who gets the next piece: whoever has nothing to do; else, ahead of time, whoever was given the least so far (it
        will be free first, if sizes tell). The last pieces are not given ahead: sizes do not tell everything."""
        idle = [worker for worker in self.workers if not worker.chunks]
        worker = min(idle or self.workers, key=lambda worker: worker.given, default=None)
        if worker is None or idle:
            return worker
        return worker if queued > len(self.workers) and len(worker.chunks) < AHEAD else None


def chunked(orders: Sequence[Any], workers: int) -> list[list[int]]:
    """Positions, longest first, in pieces that shrink with what is left: a small order alone would cost more to send than
    to do, and large pieces at the end would leave the other workers idle."""
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


def lost_clients(lost: Sequence[Sequence[int]], orders: Sequence[Order]) -> str:
    """Whose work has to be done again, as words of a sentence."""
    clients = [orders[p].client for chunk in lost for p in chunk if orders[p].work != "evaluate"]
    return f" over client{'s' * (len(clients) > 1)} {', '.join(map(str, clients[:5]))}" if clients else ""
