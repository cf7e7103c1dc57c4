"""What a worker needs to do its work: the plan, the federation's data, the network, and spare networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from undrift.contract.context import Plan
from undrift.core.vector import Flat
from undrift.evaluate.metrics import LossFunction, MetricFunction, metrics
from undrift.federation import images
from undrift.federation.federation import Federation

if TYPE_CHECKING:
    from undrift.evaluate.diagnose.base import Diagnostic

Augment = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
OtherSet = tuple[str, torch.Tensor]  # name and samples of another data set, for out-of-distribution detection


def cross_entropy(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, y, reduction="none")


class Runtime:
    """One per process. Everything in it is fixed before round 0; orders bring what changes."""

    def __init__(
        self,
        plan: Plan,
        federation: Federation,
        model: Flat,
        loss: LossFunction = cross_entropy,
        augment: Augment | None = None,
        own_metrics: Mapping[str, MetricFunction] | None = None,
        diagnostics: Sequence[Diagnostic] = (),
        ood: OtherSet | None = None,
    ) -> None:
        self.plan, self.federation, self.model, self.loss, self.augment = plan, federation, model, loss, augment
        self.own_metrics, self.diagnostics, self.ood = own_metrics or {}, tuple(diagnostics), ood
        self.initial = model.vector.clone()  # Θ⁰
        self.at_site = False  # a real site, whose replies travel over a network
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
        """The server's own samples, where it has some."""
        rows = self.federation.proxy()
        if rows is None:
            return None
        return self.network_input(rows[0]).to(self.model.device), rows[1].to(self.model.device)

    def train(self, client: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A client's training samples and labels."""
        x, y = self.federation.train(client)
        return x.to(self.model.device), y.to(self.model.device)

    def own_test(self, client: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A client's own test samples and their labels."""
        x, y = self.federation.own_test(client)
        return x.to(self.model.device), y.to(self.model.device)

    def network_input(self, x: torch.Tensor) -> torch.Tensor:
        """Samples as the network takes them."""
        return images.network_input(x)
