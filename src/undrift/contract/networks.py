"""The networks a part may use beside the one that trains: a frozen `Replica`, a trainable `Twin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from undrift.core import optimize
from undrift.core.vector import Flat

if TYPE_CHECKING:
    from undrift.contract.job import ClientData


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


class Twin:
    """A second model with the run's own clip, decay and optimizer, and a rate `lr`. A penalty on its flat vector goes into
    `plus`: as a term of the loss it would have no gradient, silently. `twin(x)` gives the logits."""

    def __init__(self, flat: Flat, data: ClientData, lr: float) -> None:
        self.flat, self.data, self.lr = flat, data, lr
        flat.module.train()
        self.P = flat.P
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

    def follow(self, G: torch.Tensor) -> None:
        """One step against a gradient along P that you have, such as `batch.gradient_at(twin.P)`."""
        optimize.step(self.rule, torch.where(torch.isfinite(G).all(), G, 0.0), self.lr)
