"""What a worker has: the plan, the federation's data, the network, and spare networks for parts that need more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from undrift.context import Plan
from undrift.evaluate.metrics import MetricFunction, metrics
from undrift.federation import Federation
from undrift.vector import Flat

LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def cross_entropy(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, y, reduction="none")


class Site:
    def __init__(
        self,
        plan: Plan,
        federation: Federation,
        model: Flat,
        loss: LossFunction = cross_entropy,
        augment: Callable[[torch.Tensor, torch.Generator], torch.Tensor] | None = None,
        own_metrics: Mapping[str, MetricFunction] | None = None,
        diagnostics: Sequence[Any] = (),
    ) -> None:
        self.plan, self.federation, self.model, self.loss, self.augment = plan, federation, model, loss, augment
        self.own_metrics, self.diagnostics = own_metrics or {}, tuple(diagnostics)
        self.initial = model.vector.clone()  # Θ⁰
        self._needs = {need for part in plan.method.parts for need in part.needs}
        self._spares: list[Flat] = []

    def wants(self, need: str) -> bool:
        return need in self._needs

    def measure(self, logits: torch.Tensor, y: torch.Tensor, ranks: bool = True) -> dict[str, float]:
        return metrics(logits, y, self.loss, self.plan.classes, self.own_metrics, ranks)

    def spare(self, number: int) -> Flat:
        """The network kept under a number: 0 scores, the others are lent to parts for a round."""
        while len(self._spares) <= number:
            self._spares.append(self.model.twin())
        return self._spares[number]

    def lent(self, vector: torch.Tensor) -> Flat:
        """A network with this vector, for a server's hook."""
        flat = self.spare(1)
        flat.load(vector)
        flat.module.eval()
        return flat

    def proxy(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        rows = self.federation.proxy()
        return None if rows is None else (self.network(rows[0]).to(self.model.device), rows[1].to(self.model.device))

    def train(self, client: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = self.federation.train(client)
        return x.to(self.model.device), y.to(self.model.device)

    def network(self, x: torch.Tensor) -> torch.Tensor:
        """Rows as the network wants them. Images lie as height × width × channels, so this is a change of strides
        that gives convolutions channels-last input for nothing, one-channel images included."""
        return x.permute(0, 3, 1, 2) if x.dim() == 4 else x
