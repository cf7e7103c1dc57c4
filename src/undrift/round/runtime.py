"""What a worker needs to do its work: the plan, the federation's data, the network, and spare networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from undrift.contract.client_data import Outputs, RowsInPlace
from undrift.contract.context import Plan
from undrift.core import samples
from undrift.core.vector import Flat
from undrift.evaluate.metrics import LossFunction, MetricFunction, metrics
from undrift.federation import images
from undrift.federation.federation import Federation
from undrift.round.lockstep.decide import Lockstep

if TYPE_CHECKING:
    from undrift.evaluate.diagnose.base import Diagnostic

Augment = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
OtherSet = tuple[str, torch.Tensor]  # name and samples of another data set, for out-of-distribution detection


class Runtime:
    """One per process. Everything in it is fixed before round 0; orders bring what changes."""

    def __init__(
        self,
        plan: Plan,
        federation: Federation,
        model: Flat,
        loss: LossFunction | None = None,
        augment: Augment | None = None,
        own_metrics: Mapping[str, MetricFunction] | None = None,
        diagnostics: Sequence[Diagnostic] = (),
        ood: OtherSet | None = None,
    ) -> None:
        self.plan, self.federation, self.model, self.augment = plan, federation, model, augment
        self.loss = plan.task.loss if loss is None else loss
        self.own_metrics, self.diagnostics, self.ood = own_metrics or {}, tuple(diagnostics), ood
        self.initial = model.vector.clone()  # Θ⁰
        self.at_site = False  # a real site, whose replies travel over a network
        self._needs = {need for part in plan.method.parts for need in part.needs}
        self._spares: list[Flat] = []
        self.lockstep = Lockstep(plan, model, self.network_input(federation.x[:2])) if plan.lockstep else None

    def wants(self, need: str) -> bool:
        return need in self._needs

    def measure(self, output: torch.Tensor, y: Any, quick: bool = False) -> dict[str, float]:
        """The task's metrics, the loss and the user's own; nothing for no sample."""
        return metrics(output, samples.aligned(y, output), self.plan.task, self.loss, self.own_metrics, quick)

    def sample_loss(self, output: torch.Tensor, y: Any) -> torch.Tensor:
        """The run's loss of every sample, of targets as a federation stores them."""
        return self.loss(output, samples.aligned(y, output))

    def spare(self, number: int) -> Flat:
        """The network kept under a number: 0 scores, the others are lent to parts for a round."""
        while len(self._spares) <= number:
            self._spares.append(self.model.twin())
        return self._spares[number]

    def stacked_passes(self, asked: Sequence[tuple[torch.Tensor, Any]], features: bool = False) -> list[Outputs] | None:
        """(logits, features) of models on samples, with the models as first axis; None where clients train one by one."""
        if self.lockstep is None:
            return None
        from undrift.round.lockstep.passes import passes

        return passes(self, asked, features)

    def lent(self, vector: torch.Tensor) -> Flat:
        """A network with this vector, for a server's hook."""
        flat = self.spare(1)
        flat.load(vector)
        flat.module.eval()
        return flat

    def proxy(self) -> tuple[Any, Any] | None:
        """The server's own samples, where it has some."""
        rows = self.federation.proxy()
        if rows is None:
            return None
        return self.network_input(rows[0]).to(self.model.device), samples.padded(rows[1]).to(self.model.device)

    def train(self, client: int) -> tuple[Any, Any]:
        """A client's training samples and targets."""
        x, y = self.federation.train(client)
        return x.to(self.model.device), y.to(self.model.device)

    def rows_in_place(self, client: int) -> RowsInPlace | None:
        """A client's training samples where they are, if they can be read there."""
        federation = self.federation
        if (
            not isinstance(federation.x, torch.Tensor)
            or federation.lazy_clients is not None
            or client in federation.permutations
            or self.model.device.type != "cpu"
        ):
            return None
        rows = torch.from_numpy(np.ascontiguousarray(federation.rows(client)))
        return RowsInPlace(federation.x, federation.y, rows)

    def own_test(self, client: int) -> tuple[Any, Any]:
        """A client's own test samples and their labels."""
        x, y = self.federation.own_test(client)
        return x.to(self.model.device), y.to(self.model.device)

    def network_input(self, x: Any) -> Any:
        """Samples as the network takes them."""
        return images.network_input(x)
