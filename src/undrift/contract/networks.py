"""The models a part may use beside the one that trains: a frozen `Replica` or `Reference`, a trainable `Twin` or `SecondModel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from undrift.core import optimize
from undrift.core.vector import Flat

if TYPE_CHECKING:
    from undrift.contract.client_data import ClientData
    from undrift.contract.context import Batch


OTHER_BATCH = "a second model learns in `after_step`, from the batch that the hook is given"


class Replica:
    """Eval mode, no gradient, fixed statistics: `replica(x)` gives (logits, features)."""

    def __init__(self, flat: Flat, data: ClientData) -> None:
        self.flat, self.data = flat, data
        flat.module.eval()
        if flat.layout.head is not None:
            flat.watch()

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        self.data.samples_scored += len(x)
        with torch.no_grad():
            return self.flat(x), self.flat.features


class Reference:
    """A frozen model in eval mode, asked about the client's batches: `reference(batch)` gives (logits, features), features
    only where a part of the method has `needs = ("features",)`.

    In lock-step no augmentation changes a sample, so one pass over the client's data answers for all epochs."""

    def __init__(self, vector: torch.Tensor, data: ClientData, role: str) -> None:
        self.vector, self.data, self.role = vector, data, role
        self.replica = None if data.in_stack else Replica(data.network(vector), data)

    def __call__(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.replica is not None:
            logits, features = self.replica(batch.x)
            return logits, features if self.data.runtime.wants("features") else None
        known = self.data.scored(self.role, self.vector)
        return known.logits[batch.index], None if known.features is None else known.features[batch.index]


class SecondModel(Protocol):
    """A model that learns from the same batches as the client's first one, with the run's own clip, decay and optimizer."""

    P: torch.Tensor  # its live parameters, flat; do not keep or change

    @property
    def vector(self) -> torch.Tensor:
        """A copy of the whole model: parameters and buffers."""
        ...

    def learn(self, batch: Batch, plus: torch.Tensor | None = None) -> torch.Tensor:
        """One step on the plain loss of the batch; call it in `after_step`. Returns the raw gradient along P, before
        `plus` is added to it. A non-finite gradient counts as zero."""
        ...


class Twin:
    """A second model with the run's own clip, decay and optimizer, and a rate `lr`. A penalty on its flat vector goes into
    `plus`: as a term of the loss it would have no gradient, silently. `twin(x)` gives the logits."""

    def __init__(self, flat: Flat, data: ClientData, lr: float) -> None:
        self.flat, self.data, self.lr = flat, data, lr
        flat.module.train()
        self.P: torch.Tensor = flat.P
        self.rule = optimize.optimizer(flat, data.plan)
        self.G = torch.empty_like(flat.P)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.data.samples_trained += len(x)
        if (
            self.flat.layout.batchnorm_needs_two
        ):  # BatchNorm cannot learn from one value per channel: keep its statistics
            for child in self.flat.module.modules():
                if isinstance(child, torch.nn.modules.batchnorm._BatchNorm):
                    child.train(len(x) > 1)
        return self.flat(x)

    @property
    def vector(self) -> torch.Tensor:
        """A copy of the whole model: parameters and buffers."""
        return self.flat.vector.clone()

    def loss(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The run's plain loss, as a mean: what other parts do to the loss is not in it (`batch.gradient_at` has it)."""
        return self.data.runtime.loss(logits, y).mean()

    def step(self, loss: torch.Tensor, plus: torch.Tensor | None = None) -> torch.Tensor:
        """One step down `loss`; returns the raw gradient along P. A non-finite gradient counts as zero."""
        self.flat.gradient(loss, into=self.G)
        raw = self.G.clone()
        if plus is not None:
            self.G.add_(plus)
        self.follow(self.G)
        return raw

    def learn(self, batch: Batch, plus: torch.Tensor | None = None) -> torch.Tensor:
        """One step on the plain loss of the batch; see `SecondModel.learn`."""
        return self.step(self.loss(self(batch.x), batch.y), plus)

    def follow(self, G: torch.Tensor) -> None:
        """One step against a gradient along P that you have, such as `batch.gradient_at(twin.P)`."""
        optimize.step(self.rule, torch.where(torch.isfinite(G).all(), G, 0.0), self.lr)


class ModelStack(Protocol):
    """The second models of all clients that train together."""

    def vector(self, place: int) -> torch.Tensor: ...
    def learn(self, place: int, batch: Batch, lr: float, plus: torch.Tensor | None) -> torch.Tensor: ...


class StackedModel:
    """A `SecondModel` in lock-step: while training it is a row of a stack."""

    def __init__(self, vector: torch.Tensor, data: ClientData, lr: float) -> None:
        self.start, self.data, self.lr = vector, data, lr
        self.P = data.plan.layout.trainable(vector)
        self.stack: ModelStack | None = None
        self.place = 0

    def join(self, stack: ModelStack, place: int, P: torch.Tensor) -> None:
        """From now on it lies in this stack."""
        self.stack, self.place, self.P = stack, place, P

    @property
    def vector(self) -> torch.Tensor:
        return self.start.clone() if self.stack is None else self.stack.vector(self.place)

    def learn(self, batch: Batch, plus: torch.Tensor | None = None) -> torch.Tensor:
        if self.stack is None:
            raise RuntimeError(OTHER_BATCH)
        raw = self.stack.learn(self.place, batch, self.lr, plus)
        self.data.samples_trained += len(batch.y)
        return raw
