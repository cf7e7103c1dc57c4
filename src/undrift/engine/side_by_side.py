"""Several runs in one process, whose clients train in the same stacks.

Every run has a thread of its own, and one thread runs at a time: a run continues until it asks its engine for work. When
all runs have asked, their orders are served together by the thread that started them, and every run continues with its own
replies. So the loop of a run stays as it is, and nothing that a process has once, such as the random generator, is used
by two runs at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from undrift.core.determinism import one_thread
from undrift.round.engine import Engine
from undrift.round.lockstep.serve import Work, serve_all
from undrift.round.orders import Order, Reply
from undrift.round.runtime import Runtime
from undrift.store.states import States


@dataclass(frozen=True)
class Ended:
    """How a run ended: with a value, or with the error that it raised."""

    value: Any = None
    error: BaseException | None = None


class SideBySide(Engine):
    """The engine of one of the runs."""

    name = "inline"

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self.asked: SimpleQueue[Sequence[Work] | Ended] = SimpleQueue()
        self.answers: SimpleQueue[Sequence[Reply] | None] = SimpleQueue()  # None: stop
        self.calls: list[Callable[[], None]] = []  # what the starting thread calls for this run

    def open(self, runtime: Runtime, states: States) -> SideBySide:
        self.runtime, self.states = runtime, states
        self.plan_line = f"engine inline: {self.runs} runs side by side in one process, on {runtime.model.device}"
        return self

    def work(self, orders: Sequence[Order]) -> Iterator[tuple[int, Reply]]:
        if not orders:
            return
        began = time.perf_counter()
        self.asked.put([(self.runtime, self.with_state(order)) for order in orders])
        replies = self.answers.get()
        if replies is None:
            raise KeyboardInterrupt
        # What the other runs took meanwhile is no time of this run.
        self.elsewhere += max(0.0, time.perf_counter() - began - sum(reply.seconds for reply in replies))
        yield from enumerate(replies)


class RunThread(threading.Thread):
    """One run. Its own thread does `run`, the starting thread calls the other methods."""

    def __init__(self, carry_out: Callable[[SideBySide], Any], runs: int) -> None:
        super().__init__(daemon=True)  # a second Ctrl-C waits for no run
        self.carry_out, self.engine = carry_out, SideBySide(runs)
        self.works: Sequence[Work] = ()  # what it waits for
        self.ended: Ended | None = None

    def run(self) -> None:
        try:
            ended = Ended(self.carry_out(self.engine))
        except BaseException as error:
            ended = Ended(error=error)
        self.engine.asked.put(ended)

    def wait(self) -> None:
        """Wait until the run asks for work, or ends."""
        asked = self.engine.asked.get()
        if isinstance(asked, Ended):
            self.ended = asked
        else:
            self.works = asked

    def proceed(self, replies: Sequence[Reply]) -> None:
        """Let the run continue until it asks for work again, or ends; then make the calls it left."""
        self.engine.answers.put(replies)
        self.wait()
        self.call()

    def call(self) -> None:
        calls, self.engine.calls = self.engine.calls, []
        for call in calls:
            call()

    def stop(self) -> None:
        """Interrupt the run as Ctrl-C would: its last round becomes durable."""
        while self.ident is not None and self.ended is None:
            self.engine.answers.put(None)
            self.wait()


def side_by_side(runs: Sequence[Callable[[SideBySide], Any]], on_end: Callable[[int, Ended], None]) -> None:
    """Carry out runs, each on the engine that it is given. `on_end` gets the number of each run when it has ended.

    Whatever this thread raises (Ctrl-C, an error in `on_end`) first stops all runs."""
    threads = [RunThread(run, len(runs)) for run in runs]
    with one_thread():
        try:
            for thread in threads:
                thread.start()
                thread.wait()
                thread.call()
            left = dict(enumerate(threads))
            while left:
                for number, thread in list(left.items()):
                    if thread.ended is not None:
                        del left[number]
                        on_end(number, thread.ended)
                replies = iter(serve_all([work for thread in left.values() for work in thread.works]))
                for thread in left.values():
                    thread.proceed([next(replies) for _ in thread.works])
        except BaseException:
            for thread in threads:
                thread.stop()
            raise
