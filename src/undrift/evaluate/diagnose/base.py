"""A diagnostic is a frozen dataclass whose fields are its configuration. It looks at a finished round and records numbers
(rows of `metrics`) and pictures (rows of `notes`). Heavy work goes to the engine's workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from undrift.contract.client_data import CHUNK
from undrift.contract.context import Plan
from undrift.core.errors import RunFailed
from undrift.core.samples import joined
from undrift.core.streams import numpy_stream
from undrift.round.orders import Order, Reply
from undrift.store.record import Metric, Note
from undrift.store.server_state import ServerState

if TYPE_CHECKING:
    from undrift.core.vector import Flat
    from undrift.evaluate.diagnose.counting import Written
    from undrift.round.runtime import Runtime


@dataclass(frozen=True)
class ServerWork:
    """What the server does between the answers and the next model."""

    numbers: int = 0  # written by elementwise operations
    products: int = 0  # operations of matrix products
    assignments: int = 0  # n³ per assignment of n units


@dataclass(frozen=True)
class RoundView:
    """A finished round. θ^t is `before.vector`; the evaluated model after it is `after.evaluated`."""

    runtime: Runtime
    before: ServerState
    after: ServerState
    orders: Sequence[Order]
    answers: Sequence[Reply]  # that passed quarantine
    weights: dict[int, float]  # by client, those the mean was taken with
    messages_for: Callable[[int], dict[str, dict[str, Any]]]  # what a client would get with `after`
    server_work: ServerWork = ServerWork()  # from the answers to `after`, where a diagnostic counts it

    @property
    def plan(self) -> Plan:
        return self.runtime.plan

    @property
    def round(self) -> int:
        return self.before.round

    def trained(self) -> list[tuple[Order, Order]]:
        """For every participant an order with the model it was sent, and one with the model it trained from that."""
        by_client = {order.client: replace(order, server_messages={}, state_round=None) for order in self.orders}
        return [
            (by_client[reply.client], replace(by_client[reply.client], vector=reply.vector, integers=reply.integers))
            for reply in self.answers
            if reply.vector is not None
        ]


@dataclass
class Findings:
    """Numbers and pictures of one diagnostic in one round."""

    name: str
    round: int
    rows: list[Metric] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def number(
        self, metric: str, value: float | torch.Tensor, client: int | None = None, stage: str = "G", data: str = "train"
    ) -> None:
        self.rows.append((self.round, client, stage, data, metric, float(value)))

    def picture(self, name: str, value: Any, client: int | None = None) -> None:
        self.notes.append((self.round, client, f"diagnose.{self.name}", name, json.dumps(value)))


Ask = Callable[[Sequence[Order]], list[dict[str, Any]]]  # orders -> what `work` found for each


class Diagnostic:
    """Neutral hooks; a diagnostic is final."""

    name = ""
    needs: tuple[str, ...] = ()  # of the task, as a part's
    at_the_end = False  # only after the last round
    counts_the_server = False  # wants to know `RoundView.server_work`, which slows the server down

    def check(self, runtime: Runtime) -> None:
        """Refuse with a sentence what cannot be done in this run."""

    def observe(self, view: RoundView, found: Findings, ask: Ask) -> None:
        """In the driver, after an evaluated round."""

    def work(self, runtime: Runtime, order: Order) -> dict[str, Any]:
        """At a worker: one piece (`order.span[1]`) of what `observe` asks for."""
        return {}


def counter(diagnostics: Sequence[Diagnostic]) -> AbstractContextManager[Written | None]:
    """Around the server's own work of a round: counts it where one of these wants to know."""
    if not any(one.counts_the_server for one in diagnostics):
        return nullcontext()
    from undrift.evaluate.diagnose.counting import Written

    return Written()


def observe_round(
    diagnostics: Sequence[Diagnostic], view: RoundView, engine: Any, last: bool
) -> tuple[list[Metric], list[Note]]:
    """Everything the diagnostics say about a round, some of them only about the run's last one."""
    rows, notes = list[Metric](), list[Note]()
    for place, one in enumerate(diagnostics):
        if one.at_the_end and not last:
            continue

        def ask(orders: Sequence[Order], place: int = place, name: str = one.name) -> list[dict[str, Any]]:
            given = [replace(order, work="diagnose", evaluate_on=(), span=(place, order.span[1])) for order in orders]
            replies = engine.map(given)
            for reply in replies:
                if reply.failure is not None:
                    raise RunFailed(
                        f"the diagnostic {name} failed in round {view.round}: {reply.failure.detail}\n\n"
                        f"{reply.failure.traceback}"
                    )
            return [reply.found for reply in replies]

        found = Findings(one.name, view.round)
        one.observe(view, found, ask)
        rows, notes = rows + found.rows, notes + found.notes
    return rows, notes


def piece(view: RoundView, number: int, vector: torch.Tensor, size: int = 1) -> Order:
    """An order about no client in particular."""
    return Order("diagnose", view.round, -1 - number, vector, view.after.integers, span=(0, number), size=size)


def loaded(runtime: Runtime, order: Order) -> Flat:
    """The order's model in eval mode."""
    spare = runtime.spare(0)
    spare.load(order.vector, order.integers)
    spare.module.eval()
    return spare


def pooled(runtime: Runtime, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A seeded sample of all clients' training data, as each client calls its labels; all of it where it is smaller.
    The same in every round."""
    federation = runtime.federation
    ends = federation.sizes.cumsum()
    drawn = numpy_stream(runtime.plan.seed, "pooled").permutation(int(ends[-1]))[:samples]
    drawn.sort()
    owners = ends.searchsorted(drawn, side="right")
    xs, ys = [], []
    for client in sorted(set(owners.tolist())):
        x, y = federation.train(client)
        mine = torch.from_numpy(drawn[owners == client] - (int(ends[client]) - int(federation.sizes[client])))
        xs.append(x[mine])
        ys.append(y[mine])
    device = runtime.model.device
    return joined(xs).to(device), joined(ys).to(device)


def gradient(
    runtime: Runtime, flat: Flat, x: torch.Tensor, y: torch.Tensor, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """∇ of the mean (weighted) loss along P, chunk by chunk, summed in float64."""
    total = torch.zeros(flat.layout.nP, dtype=torch.float64)
    part = torch.empty_like(flat.P)
    for at in range(0, len(y), CHUNK):
        place = slice(at, at + CHUNK)
        loss = runtime.sample_loss(flat(runtime.network_input(x[place])), y[place])
        loss = loss if weights is None else weights[place] * loss
        flat.gradient(loss.sum() / len(y), into=part)
        total += part.cpu()
    return total
