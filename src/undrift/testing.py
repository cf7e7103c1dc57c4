"""For tests of parts, ours and yours: small federations, runs of parts, and the battery `check(part)`.

`check` puts a part through what the conformance table demands of every shipped one and raises `Broken` with a sentence
for the first law it breaks: no hidden state, no leaked view, only declared messages, weights that do not depend on the
order of clients, draws only from its own streams.
"""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from undrift.aggregate import World
from undrift.compose import method
from undrift.context import Tree
from undrift.declare import Malformed
from undrift.engine.base import Engine
from undrift.engine.inline import Inline
from undrift.federation import Federation
from undrift.local import Round, deterministic, serve
from undrift.loop import Loop
from undrift.options import from_keywords
from undrift.orders import Order, Reply
from undrift.parts import Part, axes_of, defines
from undrift.setup import Setup, prepare
from undrift.store.trees import dump
from undrift.store.vault import Vault

QUICK = {"epochs": 2, "batch": 16, "lr": 0.1, "momentum": 0.0, "cohort": 1.0, "rounds": 3, "out": False}


class Broken(AssertionError):
    """A part breaks a law of the contract."""


@dataclasses.dataclass
class Outcome:
    """A finished run of parts, opened up."""

    setup: Setup
    world: World
    vault: Vault

    @property
    def vector(self) -> torch.Tensor:
        """The judged vector."""
        return self.world.judged

    @property
    def sent(self) -> torch.Tensor:
        """The vector that the next round would send."""
        return self.world.vector

    @property
    def memory(self) -> Tree:
        """The server memory of the one part that has some."""
        (memory,) = [tree for tree in self.world.memories.values() if tree is not None]
        return memory

    def states(self, client: int) -> dict[str, Tree]:
        """The committed states of a client's parts, by `axis.name`."""
        return self.raw_state(client)["parts"]

    def raw_state(self, client: int) -> dict[str, Tree]:
        """Everything kept for a client: {"parts": …, "private": …, "momentum": …, "held": …}."""
        return self.vault.states.get("state", client, self.world.versions["state", client])

    def state(self, client: int) -> Tree:
        """The committed state of the one part that keeps some."""
        (state,) = self.states(client).values()
        return state

    def notes(self, name: str) -> list[tuple[int, int | None, Any]]:
        """(round, client, value) of everything noted under a name, in order."""
        import json

        rows = self.vault.record.all("SELECT round, client, value FROM notes WHERE name=? ORDER BY rowid", (name,))
        return [(round, client, json.loads(value)) for round, client, value in rows]

    def metrics(self, stage: str, data: str, metric: str = "accuracy") -> dict[tuple[int, int | None], float]:
        rows = self.vault.record.all(
            "SELECT round, client, value FROM metrics WHERE stage=? AND data=? AND metric=?", (stage, data, metric)
        )
        return {(round, client): value for round, client, value in rows}

    @property
    def events(self) -> list[tuple[Any, ...]]:
        return self.vault.record.all("SELECT round, client, kind, detail FROM events ORDER BY rowid")


class Losing(Engine):
    """Replies of (round, client) get lost on the way, after the client has written its state."""

    def __init__(self, inner: Inline, lost: Collection[tuple[int, int]]) -> None:
        self.inner, self.lost, self.states, self.name = inner, lost, inner.states, inner.name

    def map(self, orders: Sequence[Order]) -> list[Reply]:
        return [
            reply.failed("dropped", "the reply was lost") if (reply.round, reply.client) in self.lost else reply
            for reply in self.inner.map(orders)
        ]


def run_parts(
    what: Any, federation: Federation, *, lose: Collection[tuple[int, int]] = (), folder: Any = None, **options: Any
) -> Outcome:
    """Run parts (a part, a text, a Method, or a list) on a federation with small settings; everything stays in memory
    unless `folder` is given. Defaults: 3 rounds of all clients, 2 epochs, batch 16, lr 0.1, no momentum."""
    pieces = what if isinstance(what, (list, tuple)) else [what]
    own = {"model": federation.model, "loss": federation.loss} if isinstance(federation, Toy) else {}
    settings = from_keywords({**QUICK, **own, **options, "method": method(*pieces)})
    setup = prepare(settings, federation)
    vault = Vault(folder, every=1)
    loop = Loop(setup, Losing(Inline(setup.site, vault.states), lose), vault)
    return Outcome(setup, loop.run(loop.begin()), vault)


class Toy(Federation):
    """A federation that brings its own model and loss."""

    model: Any
    loss: Any


class Point(nn.Module):
    """A single parameter per coordinate; the data say how steep and where the valley is."""

    def __init__(self, start: float, size: int) -> None:
        super().__init__()
        self.point = nn.Parameter(torch.full((size,), float(start)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        curvature, optimum = x[:, 0:1], x[:, 1:2]
        return curvature.sqrt() * (self.point - optimum)


def half_square(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return logits.square().sum(1) / 2


def quadratics(
    curvature: Sequence[float], optimum: Sequence[float], samples: int | Sequence[int] = 1, start: float = 0.0
) -> Toy:
    """Client k minimises curvature_k · (x − optimum_k)² / 2. The uniform optimum is Σ c·o / Σ c."""
    counts = [samples] * len(curvature) if isinstance(samples, int) else list(samples)
    clients = []
    for c, o, n in zip(curvature, optimum, counts):
        x = torch.tensor([[c, o]]).repeat(n, 1)
        clients.append((x, torch.zeros(n, dtype=torch.long), x[:1], torch.zeros(1, dtype=torch.long)))
    federation = Federation.from_clients(clients, name="quadratics", labels=["0"])
    toy = object.__new__(Toy)
    toy.__dict__.update(federation.__dict__)
    toy.model, toy.loss = (lambda: Point(start, 1)), half_square
    return toy


def tiny(clients: int = 4, classes: int = 3, samples: int = 24, features: int = 5, seed: int = 0,
         sizes: Sequence[int] | None = None) -> Toy:  # fmt: skip
    """Blobs with skewed labels and unequal sizes, and a small MLP: a federation for laws, not for accuracy."""
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(classes, features)) * 2
    parts = []
    for client in range(clients):
        n = sizes[client] if sizes is not None else samples + 5 * client
        shares = np.full(classes, 0.15)
        shares[client % classes] = 1.0
        y = draw.choice(classes, n + 12, p=shares / shares.sum())
        x = (centres[y] + draw.normal(size=(n + 12, features))).astype(np.float32)
        x, y = torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))
        parts.append((x[:n], y[:n], x[n:], y[n:]))
    federation = Federation.from_clients(parts, name="tiny", labels=[str(c) for c in range(classes)])
    toy = object.__new__(Toy)
    toy.__dict__.update(federation.__dict__)
    toy.model, toy.loss = (lambda: small_network(features, classes)), None
    return toy


def small_network(features: int, classes: int, norm: bool = False, dropout: float = 0.0) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(features, 8)]
    if norm:
        layers.append(nn.BatchNorm1d(8))
    layers.append(nn.ReLU())
    if dropout:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(8, classes))


# ---- the battery -------------------------------------------------------------------------------------------------


def check(part: Part, **options: Any) -> None:
    """Put a part through the public battery; raises `Broken` with the law it breaks."""
    form(part)
    federation = tiny()
    for norm in (False, True):
        settings = {**options, "model": lambda norm=norm: small_network(5, 3, norm=norm), "rounds": 3}
        first = watched_run(part, federation, settings)
        second = watched_run(part, federation, settings)
        if not torch.equal(first.vector, second.vector):
            raise Broken(f"{part.name} gives another result the second time: it keeps something outside its state")
        if not torch.isfinite(first.vector).all():
            raise Broken(f"{part.name} gives a vector that is not finite on harmless data")
    order_of_clients(part, federation, options)
    one_client(part, federation, options)


def form(part: Part) -> None:
    if not dataclasses.is_dataclass(part) or not type(part).__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise Broken(f"{type(part).__name__} must be a frozen dataclass: its fields are its configuration")
    if not axes_of(part):
        raise Broken(f"{type(part).__name__} must derive from an axis: Sampling, Objective, Personalize, Weighting, Combine or ServerUpdate")
    if any(isinstance(base, type) and dataclasses.is_dataclass(base) for base in type(part).__mro__[1:]):
        raise Broken(f"{type(part).__name__} derives from another part; parts are final, compose them instead")
    if copy.deepcopy(part) != part:
        raise Broken(f"{part.name} does not equal its own copy: a field is not a plain value")


def watched_run(part: Part, federation: Toy, settings: dict[str, Any]) -> Outcome:
    """A run during which the part's fields, the global generators and the committed trees must not move."""
    before = dict(vars(part)), class_values(part)
    states = random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index,union-attr]
    pieces = [part]
    own = {"model": federation.model, "loss": federation.loss}
    setup = prepare(from_keywords({**QUICK, **own, **settings, "method": method(*pieces)}), federation)
    vault = Vault(None)
    loop = Loop(setup, Watching(setup, vault, part), vault)
    world = loop.begin()
    while world.round < setup.plan.rounds:
        trees = {key: dump(tree) for key, tree in world.memories.items()}
        after, rows, notes, events, cohort = loop.one_round(world)
        if {key: dump(tree) for key, tree in world.memories.items()} != trees:
            raise Broken(f"{part.name} changes its server memory in place; assign a new tree to server.memory")
        for _, _, kind, detail in events:
            if kind in ("malformed", "exception"):
                raise Broken(f"{part.name}: {detail}")
        vault.record.commit_round(world.round, 0.0, 0.0, cohort, rows, notes, events)
        world = after
    if (dict(vars(part)), class_values(part)) != before:
        raise Broken(f"{part.name} keeps hidden state: its attributes changed during a run; return it as state instead")
    if (random.getstate(), np.random.get_state()[1].tobytes()) != states:  # type: ignore[index,union-attr]
        raise Broken(f"{part.name} draws from a global generator; use job.stream(purpose) or server.stream(purpose)")
    return Outcome(setup, world, vault)


def class_values(part: Part) -> dict[str, str]:
    return {name: repr(value) for name, value in vars(type(part)).items() if not callable(value) and "__" not in name}


class Watching(Engine):
    """Runs orders twice and watches what a part does beside its work."""

    name = "watching"

    def __init__(self, setup: Setup, vault: Vault, part: Part) -> None:
        self.site, self.states, self.part = setup.site, vault.states, part

    def work(self, orders: Sequence[Order]) -> Any:
        for position, order in enumerate(orders):
            order = self.with_state(order)
            if order.work == "judge":
                yield position, serve(self.site, order)
                continue
            kept = copy.deepcopy(order.state)
            first = self.served(order, seed=1)
            frozen = dump(first.state), {k: dump(strings(v)) for k, v in first.messages.items()}
            order.state = kept
            second = self.served(order, seed=2)  # on the same network, so that a leaked view moves
            if (dump(first.state), {k: dump(strings(v)) for k, v in first.messages.items()}) != frozen:
                raise Broken(f"{self.part.name} hands out a view of a live buffer: it changes after the round")
            if first.vector is not None and second.vector is not None and not torch.equal(first.vector, second.vector):
                raise Broken(f"{self.part.name} gives another result for the same order: it keeps hidden state or draws outside its streams")
            if dump(first.state) != dump(second.state):
                raise Broken(f"{self.part.name} gives another state for the same order: it keeps hidden state or draws outside its streams")
            yield position, second

    def served(self, order: Order, seed: int) -> Reply:
        """Serve with the process-wide generators in an arbitrary place: a draw from them shows as a difference."""
        ours = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        moved = random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index,union-attr]
        try:
            with deterministic(seed):
                reply = Round(self.site, order).run()
        except Malformed as wrong:
            raise Broken(f"{self.part.name}: {wrong}") from wrong
        if (random.getstate(), np.random.get_state()[1].tobytes()) != moved:  # type: ignore[index,union-attr]
            raise Broken(f"{self.part.name} draws from a global generator; use job.stream(purpose)")
        random.setstate(ours[0])
        np.random.set_state(ours[1])
        return reply


def strings(message: dict[str, Any]) -> Tree:
    return {k: {str(c): x for c, x in v.items()} if isinstance(v, dict) else v for k, v in message.items()}


def order_of_clients(part: Part, federation: Toy, options: dict[str, Any]) -> None:
    """Weights may not depend on the order in which replies lie."""
    if not defines(part, "weights"):
        return
    outcome = run_parts(part, federation, **{**options, "rounds": 1})
    loop = Loop(outcome.setup, Inline(outcome.setup.site, outcome.vault.states), outcome.vault)
    world = loop.begin()
    desk = loop.desktop(world)
    orders = loop.orders(world, desk, list(range(federation.clients)))
    answers, _ = loop.quarantine(orders, loop.engine.map(orders))
    from undrift.aggregate import replies_of

    replies = replies_of(orders, answers)
    turned = list(reversed(range(len(replies))))
    straight = part.weights(desk.window(part), replies.of(part.key))  # type: ignore[attr-defined]
    back = part.weights(desk.window(part), replies.only(turned).of(part.key))  # type: ignore[attr-defined]
    if not torch.allclose(straight, back.flip(0), rtol=1e-9, atol=0):
        raise Broken(f"{part.name} gives weights that depend on the order of the clients")
    if (straight < 0).any():
        raise Broken(f"{part.name} gives a negative weight")


def one_client(part: Part, federation: Toy, options: dict[str, Any]) -> None:
    """A cohort of one, a client with one sample, a client with one class: nothing may raise."""
    lonely = tiny(clients=3, sizes=[1, 17, 30])
    for chosen in ("list([0])", "all"):
        settings = {**options, "selection": chosen, "cohort": None, "rounds": 2}
        watched_run(part, lonely, {**settings, "model": federation.model})


__all__ = ["Broken", "Outcome", "check", "half_square", "quadratics", "run_parts", "small_network", "tiny"]
