"""For tests of parts: small federations and networks, runs of parts, and `check(part)`.

`check` demands of a part what the conformance table demands of every shipped one, and raises `Broken` with a sentence for
the first law it breaks: no hidden state, no leaked view, only declared messages, weights that do not depend on the
order of clients, draws only from its own streams.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from undrift.contract.parts import Part
from undrift.core.determinism import one_thread
from undrift.engine.inline import Inline
from undrift.experiment.options import from_keywords
from undrift.experiment.setup import Setup, prepare
from undrift.federation.federation import Federation
from undrift.methods.naming import method
from undrift.round.engine import Engine
from undrift.round.orders import Order, Reply
from undrift.store.run_store import RunStore
from undrift.store.server_state import ServerState

# One by one, so that a part which works in lock-step gives the same bits beside one that does not.
QUICK = {
    "epochs": 2, "batch": 16, "lr": 0.1, "momentum": 0.0, "cohort": 1.0, "rounds": 3, "out": False, "lockstep": "off",
}  # fmt: skip


class Broken(AssertionError):
    """A part breaks a law of the contract."""


@dataclasses.dataclass
class Outcome:
    """A finished run of parts, opened up."""

    setup: Setup
    server_state: ServerState
    store: RunStore

    @property
    def vector(self) -> torch.Tensor:
        """The evaluated vector."""
        return self.server_state.evaluated

    @property
    def sent(self) -> torch.Tensor:
        """The vector that the next round would send."""
        return self.server_state.vector

    @property
    def memory(self) -> Any:
        """The server memory of the one part that has some."""
        (memory,) = [tree for tree in self.server_state.memories.values() if tree is not None]
        return memory

    def states(self, client: int) -> dict[str, Any]:
        """The committed states of a client's parts, by `axis.name`."""
        return self.raw_state(client)["parts"]

    def raw_state(self, client: int) -> dict[str, Any]:
        """Everything kept for a client: {"parts": …, "private": …, "momentum": …, "held": …}."""
        return self.store.states.get("state", client, self.server_state.versions["state", client])

    def state(self, client: int) -> Any:
        """The committed state of the one part that keeps some."""
        (state,) = self.states(client).values()
        return state

    def notes(self, name: str) -> list[tuple[int, int | None, Any]]:
        """(round, client, value) of everything noted under a name, in order."""
        import json

        rows = self.store.record.all("SELECT round, client, value FROM notes WHERE name=? ORDER BY rowid", (name,))
        return [(round, client, json.loads(value)) for round, client, value in rows]

    def metrics(self, stage: str, data: str, metric: str = "accuracy") -> dict[tuple[int, int | None], float]:
        rows = self.store.record.all(
            "SELECT round, client, value FROM metrics WHERE stage=? AND data=? AND metric=?", (stage, data, metric)
        )
        return {(round, client): value for round, client, value in rows}

    @property
    def events(self) -> list[tuple[Any, ...]]:
        return self.store.record.all("SELECT round, client, kind, detail FROM events ORDER BY rowid")


class Losing(Engine):
    """Replies of (round, client) get lost on the way, after the client has written its state."""

    def __init__(self, inner: Engine, lost: Collection[tuple[int, int]]) -> None:
        self.inner, self.lost, self.states, self.name = inner, lost, inner.states, inner.name

    def map(self, orders: Sequence[Order]) -> list[Reply]:
        return [
            reply.failed("dropped", "the reply was lost") if (reply.round, reply.client) in self.lost else reply
            for reply in self.inner.map(orders)
        ]


def run_parts(
    what: Any,
    federation: Federation,
    *,
    lose: Collection[tuple[int, int]] = (),
    folder: Any = None,
    engine: Engine | None = None,
    **options: Any,
) -> Outcome:
    """Run parts (a part, a text, a Method, or a list) on a federation with small settings; everything stays in memory
    unless `folder` is given. `engine` is one that already runs.
    Defaults: 3 rounds of all clients, 2 epochs, batch 16, lr 0.1, no momentum."""
    pieces = what if isinstance(what, (list, tuple)) else [what]
    own = {"model": federation.model, "loss": federation.loss} if isinstance(federation, Toy) else {}
    settings = from_keywords({**QUICK, **own, **options, "method": method(*pieces)})
    setup = prepare(settings, federation)
    store = RunStore(folder, every=1)
    opened = Inline(setup.runtime, store.states) if engine is None else engine.open(setup.runtime, store.states)
    loop = setup.loop(Losing(opened, lose), store)
    with one_thread():
        return Outcome(setup, loop.run(loop.begin()), store)


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


def tiny(
    clients: int = 4,
    classes: int = 3,
    samples: int = 24,
    features: int = 5,
    seed: int = 0,
    sizes: Sequence[int] | None = None,
) -> Toy:
    """Blobs with skewed labels and unequal sizes, and a small MLP: a federation for laws, not for accuracy."""
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(classes, features)) * 2
    parts = []
    for client in range(clients):
        n = sizes[client] if sizes is not None else samples + 5 * client
        shares = np.full(classes, 0.15)
        shares[client % classes] = 1.0
        y = draw.choice(classes, n + 12, p=shares / shares.sum())
        inputs = (centres[y] + draw.normal(size=(n + 12, features))).astype(np.float32)
        rows, labels = torch.from_numpy(inputs), torch.from_numpy(y.astype(np.int64))
        parts.append((rows[:n], labels[:n], rows[n:], labels[n:]))
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


class LowRank(nn.Module):
    """A linear layer with a frozen weight and an adapter, with the names that `--adapt lora` gives."""

    lora_merged: torch.Tensor | None

    def __init__(self, layer: nn.Linear, rank: int, alpha: float = 2.0, merged: bool = False) -> None:
        super().__init__()
        self.base_layer, self.scaling = layer.requires_grad_(False), alpha / rank
        self.lora_A = nn.ModuleDict({"default": nn.Linear(layer.in_features, rank, bias=False)})
        second = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(second.weight)
        self.lora_B = nn.ModuleDict({"default": second})
        self.register_buffer("lora_merged", torch.zeros(layer.out_features, layer.in_features) if merged else None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self.lora_B["default"](self.lora_A["default"](x))
        if self.lora_merged is not None:
            added = added + nn.functional.linear(x, self.lora_merged)
        out: torch.Tensor = self.base_layer(x) + self.scaling * added
        return out


def adapted_network(
    features: int, classes: int, norm: bool = False, dropout: float = 0.0, rank: int = 2, merged: bool = False
) -> nn.Module:
    """`small_network` with an adapter on its first layer and a trained head."""
    first, *others = small_network(features, classes, norm, dropout).children()
    assert isinstance(first, nn.Linear)
    return nn.Sequential(LowRank(first, rank, merged=merged), *others)


def needs_adapters(what: Any) -> bool:
    """Whether a method or part runs on a network with adapters only."""
    return any("adapters" in part.needs for part in method(what).parts)


def check(part: Part, **options: Any) -> None:
    """Check a part against the contract; raises `Broken` with the law it breaks. Options are those of a run:
    `check(part, epochs=3)`."""
    from undrift.testing import conformance

    with one_thread():  # two threads would cost more than they gain on a few dozen numbers
        conformance.check(part, **options)


__all__ = [
    "Broken", "LowRank", "Outcome", "adapted_network", "check", "half_square", "needs_adapters", "quadratics", "run_parts",
    "small_network", "tiny",
]  # fmt: skip
