"""A client's round as a part sees it: the `Job`. Behind it stands the `Desk`: the client's data and the networks a
part may use beside the one that trains (frozen replicas, trainable twins, scoring passes)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from undrift import optimize
from undrift.context import Plan
from undrift.streams import torch_stream
from undrift.vector import Flat, Integers

if TYPE_CHECKING:
    from undrift.site import Site

CHUNK = 1000  # samples per evaluation pass: a constant, because it changes bits


@dataclass(frozen=True)
class Scored:
    """One un-augmented eval pass over the client's training data."""

    logits: torch.Tensor
    loss: torch.Tensor  # per sample
    features: torch.Tensor | None  # where a part needs "features"


class Desk:
    def __init__(self, site: Site, round: int, client: int, integers: Integers) -> None:
        self.site, self.round, self.client, self.integers = site, round, client, integers
        self.plan: Plan = site.plan
        self.x, self.y = site.train(client)
        self.held_x, self.held_y = self.x[:0], self.y[:0]
        self.notes: list[tuple[str, str, str]] = []  # part, name, JSON
        self.looked = 0  # samples that passed through a network to be scored
        self.learned = 0  # samples trained on, those of twins included
        self.scoring = 0.0  # seconds that scoring took
        self._scored: dict[str, Scored] = {}
        self._used = 0

    def hold_out(self, positions: torch.Tensor) -> None:
        keep = torch.ones(len(self.y), dtype=torch.bool)
        keep[positions] = False
        self.held_x, self.held_y = self.x[~keep], self.y[~keep]
        self.x, self.y = self.x[keep], self.y[keep]

    def logits(self, vector: torch.Tensor, x: torch.Tensor, features: bool = False) -> tuple[torch.Tensor, Any]:
        began = time.perf_counter()
        self.looked += len(x)
        spare = self.site.spare(0)
        spare.load(vector, self.integers)
        if features:
            spare.watch()
        found = eval_logits(spare, x, self.site.network, features)
        self.scoring += time.perf_counter() - began
        return found

    def scored(self, role: str, vector: torch.Tensor) -> Scored:
        if role not in self._scored:
            logits, features = self.logits(vector, self.x, self.site.wants("features"))
            self._scored[role] = Scored(logits, self.site.loss(logits, self.y), features)
        return self._scored[role]

    def network(self, vector: torch.Tensor) -> Flat:
        """A network of the client's own for this round, beside the one that trains."""
        self._used += 1
        other = self.site.spare(self._used)
        other.load(vector, self.integers)
        return other


class Job:
    """What a client's hook may know and do. Fields become known in this order: everything up to `received` before
    `first`; `n` and `counts` are final after `reserve`; `start` after `Personalize.start`; the rest after training."""

    start: torch.Tensor
    trained: torch.Tensor
    steps: int
    a: float | None  # normalised step count
    mean_loss: float  # raw loss over all epochs
    last_loss: float  # raw loss over the last epoch
    mean_weight: float  # of the samples

    def __init__(self, desk: Desk, part: str, received: torch.Tensor) -> None:
        self._desk, self._part = desk, part
        self.plan, self.round, self.client = desk.plan, desk.round, desk.client
        self.lr = desk.plan.rate(desk.round)
        self.received = received
        self.initial = desk.site.initial  # Θ⁰
        self.count()

    def count(self) -> None:
        self.n = len(self._desk.y)
        self.counts = torch.bincount(self._desk.y, minlength=self.plan.classes)

    @property
    def labels(self) -> torch.Tensor:
        """The labels of the client's training data, by position."""
        return self._desk.y

    def stream(self, purpose: str) -> torch.Generator:
        """Draws of this part for this client in this round."""
        return torch_stream(self.plan.seed, f"{self._part}/{purpose}", self.round, self.client)

    def lasting(self, purpose: str) -> torch.Generator:
        """Draws of this part for this client that are the same in every round (held-out data)."""
        return torch_stream(self.plan.seed, f"{self._part}/{purpose}", -1, self.client)

    def note(self, name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            value = value.tolist()
        self._desk.notes.append((self._part, name, json.dumps(value)))

    def scored(self, role: str) -> Scored:
        """One eval pass with the model in a role: "received", "start" or "trained"; passes are shared and memoised."""
        vector = getattr(self, role)
        if role == "start" and vector is self.received:
            role = "received"
        return self._desk.scored(role, vector)

    def loss(self, vector: torch.Tensor, on: str = "train") -> float:
        """Mean loss of a vector on the client's training or held-out data, in eval mode; nan where there is none."""
        x, y = (self._desk.x, self._desk.y) if on == "train" else (self._desk.held_x, self._desk.held_y)
        if not len(y):
            return float("nan")
        return self._desk.site.loss(self._desk.logits(vector, x)[0], y).double().mean().item()

    def batches(self, purpose: str, epochs: int = 1, on: str = "train") -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Un-augmented (x, y) batches of the client's training or held-out data, as the network wants them, in an
        order of this part's own."""
        desk, stream = self._desk, self.stream(purpose)
        x, y = (desk.x, desk.y) if on == "train" else (desk.held_x, desk.held_y)
        for _ in range(epochs):
            for index in torch.randperm(len(y), generator=stream).split(self.plan.batch) if len(y) else ():
                yield desk.site.network(x[index]), y[index]

    def replica(self, vector: torch.Tensor) -> Replica:
        """A frozen network, for the round."""
        return Replica(self._desk.network(vector), self._desk)

    def twin(self, vector: torch.Tensor) -> Twin:
        """A trainable copy, for the round."""
        return Twin(self._desk.network(vector), self)


class Replica:
    """Eval mode, no gradient, statistics at rest: `replica(x)` gives (logits, features)."""

    def __init__(self, flat: Flat, desk: Desk) -> None:
        self.flat, self.desk = flat, desk
        flat.module.eval()
        if flat.layout.head is not None:
            flat.watch()

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        self.desk.looked += len(x)
        with torch.no_grad():
            return self.flat(x), self.flat.features


class Twin:
    """A second model with the run's own clip, decay and optimizer. A penalty on its flat vector goes into `plus`: as a
    term of the loss it would have no gradient, silently."""

    def __init__(self, flat: Flat, job: Job) -> None:
        self.flat, self.job = flat, job
        flat.module.train()
        self.P = flat.P
        self.rule = optimize.optimizer(flat, job.plan)
        self.G = torch.empty_like(flat.P)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.job._desk.learned += len(x)
        if self.flat.layout.lone:  # BatchNorm cannot learn from one value per channel: its statistics rest
            for child in self.flat.module.modules():
                if isinstance(child, torch.nn.modules.batchnorm._BatchNorm):
                    child.train(len(x) > 1)
        return self.flat(x)

    @property
    def vector(self) -> torch.Tensor:
        return self.flat.vector.clone()

    def loss(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.job._desk.site.loss(logits, y).mean()

    def step(self, loss: torch.Tensor, plus: torch.Tensor | None = None) -> torch.Tensor:
        """One step down `loss`; returns the raw gradient along P. A non-finite gradient counts as zero."""
        self.flat.gradient(loss, into=self.G)
        raw = self.G.clone()
        if plus is not None:
            self.G.add_(plus)
        whole = torch.isfinite(self.G).all()
        optimize.step(self.rule, torch.where(whole, self.G, 0.0), self.job.lr)
        return raw


def eval_logits(
    flat: Flat, x: torch.Tensor, network: Callable[[torch.Tensor], torch.Tensor], features: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Logits (and features) in eval mode, in chunks of constant size."""
    flat.module.eval()
    out, seen = [], []
    with torch.no_grad():
        for at in range(0, len(x), CHUNK):
            out.append(flat(network(x[at : at + CHUNK])))
            if features and flat.features is not None:
                seen.append(flat.features)
    if not out:
        return torch.zeros(0, 1), None
    return torch.cat(out), torch.cat(seen) if seen else None
