"""A client's round as a part sees it: the `Job`. The networks it lends to parts are in networks.py."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from undrift.contract.context import Plan
from undrift.contract.networks import Replica as Replica
from undrift.contract.networks import Twin as Twin
from undrift.core import samples
from undrift.core.streams import torch_stream
from undrift.core.vector import Flat, Integers

CHUNK = 1000  # samples per evaluation pass: a constant, because it changes bits
PATIENCE = 3  # steps without a finite loss after which a client gives up


class ClientRuntime(Protocol):
    """What a client's round needs of the machine it runs on (`round/runtime.py` has it)."""

    plan: Plan
    initial: torch.Tensor  # Θ⁰

    @property
    def loss(self) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]: ...
    def sample_loss(self, output: torch.Tensor, y: Any) -> torch.Tensor: ...
    def train(self, client: int) -> tuple[Any, Any]: ...
    def train_rows(self, client: int) -> tuple[torch.Tensor, torch.Tensor, Any] | None: ...
    def own_test(self, client: int) -> tuple[Any, Any]: ...
    def network_input(self, x: Any) -> Any: ...
    def spare(self, number: int) -> Flat: ...
    def stacked_passes(self, asked: Sequence[tuple[torch.Tensor, Any]], features: bool = False) -> list[Any] | None: ...
    def wants(self, need: str) -> bool: ...


@dataclass(frozen=True)
class Scored:
    """One un-augmented eval pass over the client's training data."""

    logits: torch.Tensor
    loss: torch.Tensor  # per sample
    features: torch.Tensor | None  # where a part needs "features"


@dataclass(slots=True)
class TrainingStats:
    """What local training did. Complete when `after_training` is called."""

    momentum: float
    steps: int = 0
    samples: int = 0
    skipped: int = 0  # steps whose loss was not finite
    effective_steps: float | None = 0.0  # FedNova's τ_eff; None where it has no meaning
    mean_loss: float = math.nan  # raw loss over all epochs
    last_loss: float = math.nan  # raw loss over the last epoch
    mean_weight: float = math.nan  # of the samples
    _velocity: float = 0.0
    _loss_sum: float = 0.0
    _weight_sum: float = 0.0
    _epoch_samples: int = 0
    _epoch_loss_sum: float = 0.0

    @property
    def gave_up(self) -> bool:
        """Whether too many losses were not finite: the client stops."""
        return self.skipped >= PATIENCE

    def usable(self, loss: float) -> bool:
        """Whether a step can be taken; a loss that is not finite is counted."""
        if math.isfinite(loss):
            return True
        self.skipped += 1
        return False

    def add(self, samples: int, loss: float, weight: float, shrink: float) -> None:
        """One step. `shrink` is lr · μ of proximal terms: each shortens the steps that follow."""
        self.steps += 1
        assert self.effective_steps is not None  # it is withdrawn only after the last step
        self._velocity = self.momentum * self._velocity + 1 - shrink * self.effective_steps
        self.effective_steps += self._velocity
        self._epoch_samples += samples
        self._epoch_loss_sum += loss * samples
        self._weight_sum += weight * samples

    def end_epoch(self) -> None:
        """Called by the engine after every epoch: sums and means."""
        if self._epoch_samples:
            self.last_loss = self._epoch_loss_sum / self._epoch_samples
        self.samples += self._epoch_samples
        self._loss_sum += self._epoch_loss_sum
        self._epoch_samples, self._epoch_loss_sum = 0, 0.0
        self.mean_loss = self._loss_sum / max(self.samples, 1)
        self.mean_weight = self._weight_sum / max(self.samples, 1)


class ClientData:
    """A client's samples in one round, the passes over them, and what was counted and noted."""

    def __init__(self, runtime: ClientRuntime, round: int, client: int, integers: Integers) -> None:
        self.runtime, self.round, self.client, self.integers = runtime, round, client, integers
        self.plan: Plan = runtime.plan
        self.kept: tuple[torch.Tensor, torch.Tensor] | None = None  # (samples of all clients, this client's rows)
        self._x: Any = None
        if (found := runtime.train_rows(client)) is not None:
            self.kept, self.y = found[:2], found[2]
        else:
            self._x, self.y = runtime.train(client)
        self.held_x, self.held_y = (self._x if self.kept is None else self.kept[0])[:0], self.y[:0]
        self.notes: list[tuple[str, str, str]] = []  # part, name, JSON
        self.samples_scored = 0  # samples that passed through a network to be scored
        self.samples_trained = 0  # samples trained on, those of twins included
        self.scoring = 0.0  # seconds that scoring took
        self.ahead: dict[str, tuple[torch.Tensor, torch.Tensor | None]] = {}  # passes made before they are asked for
        self._scored: dict[str, Scored] = {}
        self._used = 0

    @property
    def x(self) -> Any:
        """The client's samples. They are copied when somebody looks at them: a stack reads its batches in place."""
        if self._x is None:
            assert self.kept is not None
            self._x = self.kept[0][self.kept[1]]
        return self._x

    def hold_out(self, positions: torch.Tensor) -> None:
        if not len(positions):
            return
        keep = torch.ones(len(self.y), dtype=torch.bool)
        keep[positions] = False
        self.held_x, self.held_y = self.x[~keep], self.y[~keep]
        self._x, self.y, self.kept = self.x[keep], self.y[keep], None

    def rows(self, on: str) -> tuple[Any, Any]:
        """(x, y) of the "train" or the held-out ("held") samples, or of the client's own slice of the "test" set."""
        if on == "test":
            return self.runtime.own_test(self.client)
        return (self.x, self.y) if on == "train" else (self.held_x, self.held_y)

    def logits(self, vector: torch.Tensor, x: Any, features: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:
        began = time.perf_counter()
        self.samples_scored += len(x)
        together = self.runtime.stacked_passes([(vector, x)], features)
        found = eval_pass(self.runtime, vector, self.integers, x, features) if together is None else together[0]
        self.scoring += time.perf_counter() - began
        return found

    def scored(self, role: str, vector: torch.Tensor) -> Scored:
        if role not in self._scored:
            if (ready := self.ahead.pop(role, None)) is not None:
                self.samples_scored += len(self.y)
            logits, features = ready or self.logits(vector, self.x, self.runtime.wants("features"))
            self._scored[role] = Scored(logits, self.runtime.sample_loss(logits, self.y), features)
        return self._scored[role]

    @property
    def borrows(self) -> bool:
        """Whether a part holds a network of the worker's, which the worker's next client may need."""
        return self._used > 0

    def network(self, vector: torch.Tensor) -> Flat:
        """A network of the client's own for this round, beside the one that trains."""
        self._used += 1
        other = self.runtime.spare(self._used)
        other.load(vector, self.integers)
        return other


class Job:
    """What a client's hook may know and do. Fields become known in this order: everything up to `received` before
    `init_client`; `n` and `counts` are final after `hold_out`; `start` after `Personalize.start`; `stats` and `trained`
    after training."""

    plan: Plan
    round: int
    client: int
    lr: float  # the run's rate in this round
    initial: torch.Tensor  # Θ⁰, the model before round 0
    received: torch.Tensor  # what the server sent, with the client's private entries; do not change
    n: int  # training samples
    counts: torch.Tensor  # training samples by class, where the task has "labels"
    start: torch.Tensor  # where training begins
    trained: torch.Tensor  # where it ended
    stats: TrainingStats

    def __init__(self, data: ClientData, part: str, received: torch.Tensor) -> None:
        self._data, self._part = data, part
        self.plan, self.round, self.client = data.plan, data.round, data.client
        self.lr = data.plan.rate(data.round)
        self.received = received
        self.initial = data.runtime.initial  # Θ⁰
        self.count()

    def count(self) -> None:
        """Count the samples. The engine calls it again when some are held out."""
        self.n = len(self._data.y)
        labels = self.plan.task.labels(self._data.y)
        if labels is not None:
            self.counts = torch.bincount(labels, minlength=self.plan.classes)

    @property
    def labels(self) -> torch.Tensor:
        """The classes of the client's training data, by position, for parts that need "labels"."""
        labels = self.plan.task.labels(self._data.y)
        if labels is None:
            raise RuntimeError("labels are there for parts that declare needs = ('labels',)")
        return labels

    @property
    def targets(self) -> Any:
        """What the client's training data should be predicted as, by position; sequences padded."""
        return samples.padded(self._data.y)

    def stream(self, purpose: str) -> torch.Generator:
        """Draws of this part for this client in this round."""
        return torch_stream(self.plan.seed, f"{self._part}/{purpose}", self.round, self.client)

    def lasting(self, purpose: str) -> torch.Generator:
        """Draws of this part for this client that are the same in every round (held-out data)."""
        return torch_stream(self.plan.seed, f"{self._part}/{purpose}", -1, self.client)

    def note(self, name: str, value: Any) -> None:
        """Record a value (a number, a list, a tensor) under this part's name."""
        if isinstance(value, torch.Tensor):
            value = value.tolist()
        self._data.notes.append((self._part, name, json.dumps(value)))

    def scored(self, role: str) -> Scored:
        """One eval pass with the model in a role: "received", "start" or "trained"; passes are shared and memoised."""
        vector = getattr(self, role)
        if role == "start" and vector is self.received:
            role = "received"
        return self._data.scored(role, vector)

    def loss(self, vector: torch.Tensor, on: str = "train") -> float:
        """Mean loss of a vector on the client's training or held-out data, in eval mode; nan where there is none."""
        x, y = self._data.rows(on)
        if not len(y):
            return float("nan")
        return self._data.runtime.sample_loss(self._data.logits(vector, x)[0], y).double().mean().item()

    def batches(self, purpose: str, epochs: int = 1, on: str = "train") -> Iterator[tuple[Any, Any]]:
        """Un-augmented (x, y) batches of the client's training or held-out data (or its "test" slice, which no method may
        learn from), as the network wants them, in an order of this part's own."""
        stream = self.stream(purpose)
        x, y = self._data.rows(on)
        for _ in range(epochs):
            order = torch.randperm(len(y), generator=stream)
            for at in range(0, len(y), self.plan.batch):
                index = order[at : at + self.plan.batch]
                yield self._data.runtime.network_input(x[index]), samples.padded(y[index])

    def replica(self, vector: torch.Tensor) -> Replica:
        """A frozen network, for the round."""
        return Replica(self._data.network(vector), self._data)

    def twin(self, vector: torch.Tensor, lr: float | None = None) -> Twin:
        """A trainable copy, for the round. It learns at the run's rate, or at one of its own."""
        return Twin(self._data.network(vector), self._data, self.lr if lr is None else lr)


@dataclass
class ActivePart:
    """A part at work for one client: its job, the server's message, its state and its scratch."""

    part: Any  # of any axis: the hooks it defines are looked up by name
    job: Job
    server_message: dict[str, Any] = field(default_factory=dict)
    state: Any = None  # a Tree whose shape only the part knows
    scratch: Any = None


def eval_pass(
    runtime: ClientRuntime, vector: torch.Tensor, integers: Integers, x: Any, features: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A pass of one model through the spare network."""
    spare = runtime.spare(0)
    spare.load(vector, integers)
    if features:
        spare.watch()
    return eval_logits(spare, x, runtime.network_input, features)


def eval_logits(
    flat: Flat, x: Any, network_input: Callable[[Any], Any], features: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Logits (and features) in eval mode, in chunks of constant size."""
    flat.module.eval()
    outputs, inputs_of_head = list[torch.Tensor](), list[torch.Tensor]()
    with torch.no_grad():
        for at in range(0, len(x), CHUNK):
            outputs.append(flat(network_input(x[at : at + CHUNK])))
            if features and flat.features is not None:
                inputs_of_head.append(flat.features)
    if not outputs:
        return torch.zeros(0, 1), None
    return samples.stacked_outputs(outputs), torch.cat(inputs_of_head) if inputs_of_head else None
