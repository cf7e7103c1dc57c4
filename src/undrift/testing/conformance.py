"""What `undrift.testing.check(part)` checks, and the conformance table demands of every shipped part.

Every order is served twice with the process-wide generators in different states, everything a part is given is compared
with what it was before, and the run is repeated. A difference names the law that was broken.
"""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import torch

from undrift.contract.context import Tree
from undrift.contract.declare import Malformed
from undrift.contract.parts import Part, axes_of, defines
from undrift.core.determinism import deterministic
from undrift.core.errors import BadRequest, RunFailed
from undrift.engine.inline import Inline
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import Setup, prepare
from undrift.methods.naming import method
from undrift.round.client import serve
from undrift.round.engine import Engine
from undrift.round.orders import Order, Reply
from undrift.round.server import quarantine, replies_of
from undrift.store.run_store import RunStore
from undrift.store.server_state import ServerState
from undrift.store.trees import dump
from undrift.testing import QUICK, Broken, Outcome, Toy, adapted_network, run_parts, small_network, tiny
from undrift.testing.company import check_company
from undrift.testing.stacks import check_stacks
from undrift.testing.watching import WatchedRound

STREAMS = "use job.stream(purpose) or server.stream(purpose)"


def check(part: Part, **options: Any) -> None:
    form(part)
    federation = tiny(clients=6)
    federation.proxy_rows = np.arange(0, len(federation.y), 9)
    settings = {"rounds": 3, **options}
    refused: list[BadRequest] = []
    network: Any = partial(adapted_network, merged=True) if "adapters" in part.needs else small_network
    for norm in (False, True):
        own = {**settings, "model": lambda norm=norm: network(5, 3, norm=norm), **options}
        try:
            first = watched_run(part, federation, own)
        except BadRequest as sentence:  # a part may refuse one of the networks, but not both
            refused.append(sentence)
            continue
        second = watched_run(part, federation, own)
        if not torch.equal(first.vector, second.vector):
            raise Broken(f"{part.name} gives another result the second time: it keeps something outside its state")
        if not torch.isfinite(first.vector).all():
            raise Broken(f"{part.name} gives a vector that is not finite on harmless data")
        order_of_clients(part, federation, own)
        small_clients(part, own)
    if len(refused) == 2:
        raise refused[0]
    check_stacks(part, federation, settings)
    check_company(part, options)


def form(part: Part) -> None:
    kind = type(part)
    if not dataclasses.is_dataclass(part) or not kind.__dataclass_params__.frozen:
        raise Broken(f"{kind.__name__} must be a frozen dataclass: its fields are its configuration")
    if not axes_of(part):
        raise Broken(
            f"{kind.__name__} must derive from an axis: Sampling, Objective, Personalize, Weighting, Combine, "
            "ServerUpdate or Private"
        )
    if any(isinstance(base, type) and dataclasses.is_dataclass(base) for base in kind.__mro__[1:]):
        raise Broken(f"{kind.__name__} derives from another part; parts are final, compose them instead")
    if part.axis == "personalize" and defines(part, "before_training"):
        raise Broken(f"{kind.__name__} defines before_training; a Personalize part makes its scratch in before_start")
    if copy.deepcopy(part) != part:
        raise Broken(f"{part.name} does not equal its own copy: a field is not a plain value")


def watched_run(part: Part, federation: Toy, settings: dict[str, Any]) -> Outcome:
    """A run during which nothing may move that is not the part's to move."""
    before = held(part)
    own = {"model": federation.model, "loss": federation.loss}
    setup = prepare(from_keywords({**QUICK, **own, **settings, "method": method(part)}), federation)
    store = RunStore(None)
    engine = Rehearsing(setup, store, part)
    loop = setup.loop(engine, store)
    with no_draws(part):
        server_state = loop.begin()
    while server_state.round < setup.plan.rounds:
        frozen = picture(server_state)
        try:
            with no_draws(part):
                result = loop.one_round(server_state)
        except RunFailed as error:
            raise Broken(f"{part.name}: {error}") from error
        if picture(server_state) != frozen:
            raise Broken(
                f"{part.name} changes in place what the server lent it (its memory or the global vector); "
                "assign a new tree to server.memory and return new vectors"
            )
        engine.look_again()
        for _, _, kind, detail in result.events:
            if kind in ("malformed", "exception"):
                raise Broken(f"{part.name}: {detail}")
        store.record.commit_round(
            server_state.round, 0.0, 0.0, result.cohort, result.metrics, result.notes, result.events
        )
        server_state = result.state
    if held(part) != before:
        raise Broken(f"{part.name} keeps hidden state: its attributes changed during a run; return it as state instead")
    return Outcome(setup, server_state, store)


def held(part: Part) -> tuple[str, dict[str, str]]:
    """What a part and its class carry."""
    values = {name: repr(value) for name, value in vars(type(part)).items() if not callable(value) and "__" not in name}
    return repr(sorted(vars(part).items())), values


def picture(server_state: ServerState) -> tuple[bytes, ...]:
    lent: Tree = {"vector": server_state.vector, "judged": server_state.evaluated, "integers": server_state.integers}
    return dump(lent), *(dump(server_state.memories[key]) for key in sorted(server_state.memories))


@contextmanager
def no_draws(part: Part) -> Iterator[None]:
    """The process-wide generators may not move, and are left where they were."""
    before = generators()
    yield
    if generators() != before:
        raise Broken(f"{part.name} draws from a global generator; {STREAMS}")


def generators() -> tuple[Any, bytes, bytes]:
    legacy: Any = np.random.get_state()
    place = legacy[1].tobytes() + str(legacy[2]).encode()
    return random.getstate(), place, torch.get_rng_state().numpy().tobytes()


class Rehearsing(Engine):
    """Serves every order twice and compares."""

    name = "rehearsing"

    def __init__(self, setup: Setup, store: RunStore, part: Part) -> None:
        self.runtime, self.states, self.part = setup.runtime, store.states, part
        self.lent: list[tuple[Reply, bytes]] = []

    def work(self, orders: Sequence[Order]) -> Any:
        for position, order in enumerate(orders):
            order = self.with_state(order)
            if order.work == "evaluate":
                yield position, serve(self.runtime, order)
                continue
            state = copy.deepcopy(order.state)
            first = self.served(order, seed=1)
            said = answer(first)
            second = self.served(dataclasses.replace(order, state=state), seed=2)
            if answer(first) != said:
                raise Broken(f"{self.part.name} hands out a view of a live buffer: it changes after the round")
            if answer(second) != said:
                raise Broken(
                    f"{self.part.name} gives another answer for the same order: it keeps hidden state or "
                    "draws outside its streams"
                )
            if order.work == "train":
                self.lent.append((second, answer(replaced(second))))
            yield position, second

    def served(self, order: Order, seed: int) -> Reply:
        """Serve with the process-wide generators in an arbitrary place: a draw from them shows."""
        ours = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        try:
            with deterministic(seed), no_draws(self.part):
                work = WatchedRound(self.runtime, order)
                received = work.received.clone()
                reply = work.train()
            if not torch.equal(work.received, received):
                raise Broken(f"{self.part.name} changes the received model in place: other parts share it")
            return reply
        except Malformed as wrong:
            raise Broken(f"{self.part.name}: {wrong}") from wrong
        finally:
            random.setstate(ours[0])
            np.random.set_state(ours[1])

    def look_again(self) -> None:
        """After the server's hooks: what the clients answered must be what it was."""
        for reply, said in self.lent:
            if answer(replaced(reply)) != said:
                raise Broken(f"{self.part.name} changes the clients' answers in place; work on copies")
        self.lent.clear()


def replaced(reply: Reply) -> Reply:
    """A reply as the server sees it: the keeper of the states has taken the state out."""
    return dataclasses.replace(reply, state=None)


def answer(reply: Reply) -> bytes:
    """Everything of a reply that counts, as bytes."""

    def strings(value: Any) -> Any:
        return {str(k): strings(v) for k, v in value.items()} if isinstance(value, dict) else value

    tree = {
        "vector": reply.vector,
        "state": reply.state,
        "messages": strings(reply.client_messages),
        "loss": reply.loss,
        "notes": [list(note) for note in reply.notes],
        "metrics": strings(reply.metrics),
    }
    return dump(tree)


def order_of_clients(part: Part, federation: Toy, options: dict[str, Any]) -> None:
    """Weights may not depend on the order in which replies lie, and may not be negative."""
    if not defines(part, "weights"):
        return
    outcome = run_parts(part, federation, **{**options, "rounds": 1})
    loop = outcome.setup.loop(Inline(outcome.setup.runtime, outcome.store.states), outcome.store)
    server_state = loop.begin()
    server_round = loop.open_round(server_state)
    orders = loop.orders(server_round, list(range(federation.clients)))
    answers, _ = quarantine(orders, loop.engine.map(orders), tolerate=False)
    replies = replies_of(orders, answers)
    resolved: Any = outcome.setup.method.one("weighting")
    straight = resolved.weights(server_round.window(resolved), replies.of(resolved.key)).double()
    m = len(replies)
    for turned in ([*reversed(range(m))], [*range(1, m), 0]):
        again = resolved.weights(server_round.window(resolved), replies.only(turned).of(resolved.key)).double()
        if not torch.allclose(straight[turned], again, rtol=1e-9, atol=0):
            raise Broken(f"{part.name} gives weights that depend on the order of the clients")
    if (straight < 0).any():
        raise Broken(f"{part.name} gives a negative weight")


def small_clients(part: Part, options: dict[str, Any]) -> None:
    """A cohort of one, a client with one sample, a client with one class: nothing may raise."""
    lonely = tiny(clients=6, sizes=[1, 17, 30, 6, 9, 12])
    rows = torch.from_numpy(lonely.rows(1))
    lonely.y = lonely.y.clone()
    lonely.y[rows] = 0
    lonely.proxy_rows = np.arange(0, len(lonely.y), 9)
    settings = {**options, "rounds": 2, "cohort": None}
    watched_run(part, lonely, {**settings, "selection": "all"})
    with suppress(BadRequest):  # a part may need more clients, if it says so before the first round
        watched_run(part, lonely, {**settings, "selection": "list([2])"})
