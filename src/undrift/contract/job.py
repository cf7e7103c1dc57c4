"""A client's round as a part sees it: the `Job`. The networks it lends to parts are in networks.py."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from undrift.contract.client_data import ClientData, Scored
from undrift.contract.context import Plan
from undrift.contract.networks import Reference as Reference
from undrift.contract.networks import Replica as Replica
from undrift.contract.networks import SecondModel as SecondModel
from undrift.contract.networks import StackedModel
from undrift.contract.networks import Twin as Twin
from undrift.core import samples
from undrift.core.streams import torch_stream

PATIENCE = 3  # steps without a finite loss after which a client gives up


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
        self._references = 0
        self.count()

    def count(self) -> None:
        """Count the samples. The engine calls it again when some are held out."""
        self.n = self._data.n
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
        return self.losses([vector], on)[0]

    def losses(self, vectors: Sequence[torch.Tensor], on: str = "train") -> list[float]:
        """`loss` of every vector. In lock-step they pass the data together."""
        x, y = self._data.rows(on)
        if not len(y):
            return [float("nan")] * len(vectors)
        found = self._data.passes(vectors, x)
        return [self._data.runtime.sample_loss(logits, y).double().mean().item() for logits, _ in found]

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

    def reference(self, vector: torch.Tensor) -> Reference:
        """A frozen model that is asked about the client's batches. Unlike a replica it holds no network in lock-step."""
        self._references += 1
        role = "received" if vector is self.received else f"{self._part} {self._references}"
        return Reference(vector, self._data, role)

    def second_model(self, vector: torch.Tensor, lr: float | None = None) -> SecondModel:
        """A model that learns from every batch beside the first one. Unlike a twin it holds no network in lock-step. It
        learns at the run's rate, or at one of its own."""
        if not self._data.in_stack:
            return self.twin(vector, lr)
        model = StackedModel(vector, self._data, self.lr if lr is None else lr)
        self._data.second_models.append(model)
        return model

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
