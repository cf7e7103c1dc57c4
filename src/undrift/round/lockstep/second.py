"""Second models in lock-step: one more stack beside the clients' own, which learns from the same batches.

The gradients of all clients' second models are computed together, when the first client asks for its step. A client then
takes that step in its own `after_step`, because what it does with the model next may depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from undrift.contract.context import Batch
from undrift.contract.networks import OTHER_BATCH, StackedModel
from undrift.round.lockstep.dense import logits_gradient
from undrift.round.lockstep.leaves import Leaves, leaves_of
from undrift.round.lockstep.vectors import Vectors
from undrift.round.runtime import Runtime


class SecondModels:
    """One second model of every client of a stack, or of some of them."""

    def __init__(self, runtime: Runtime, models: Sequence[StackedModel | None]) -> None:
        assert runtime.lockstep is not None
        self.plan, self.nP = runtime.plan, runtime.plan.layout.nP
        self.dense, self.network = runtime.lockstep.dense, runtime.lockstep.network
        device = runtime.model.device
        self.vectors = Vectors(self.plan, len(models), device, whole=True)
        starts = [runtime.initial if model is None else model.start.to(device) for model in models]
        self.vectors.load(self.vectors.P, starts)
        self.vectors.load_statistics(starts)
        self.statistics = self.vectors.F.clone()  # after the steps that are computed but not taken
        self.finite = [True] * len(models)  # of the gradients
        self.ready: set[int] = set()  # places whose gradient is that of this batch and of where the model is
        self.given: Sequence[Batch | None] = ()  # the batches that the hooks are given now
        self.batches, self.fresh = (torch.empty(0), torch.empty(0), torch.empty(0)), True
        for place, model in enumerate(models):
            if model is not None:
                model.join(self, place, self.vectors.P[0][place, : self.nP])

    def begin(self, given: Sequence[Batch | None], x: torch.Tensor, y: torch.Tensor, share: torch.Tensor) -> None:
        """The next batches of the first clients: as their hooks know them, and stacked."""
        self.given, self.batches, self.fresh = given, (x, y, share), True
        self.ready.clear()

    def end(self) -> None:
        """The hooks have been called."""
        self.given = ()

    def vector(self, place: int) -> torch.Tensor:
        return torch.cat([self.vectors.P[0][place, : self.nP], self.vectors.F[place]])

    def learn(self, place: int, batch: Batch, lr: float, plus: torch.Tensor | None) -> torch.Tensor:
        """A client's step: clip, then the optimizer. Returns the raw gradient."""
        if place >= len(self.given) or batch is not self.given[place]:
            raise RuntimeError(OTHER_BATCH)
        if place not in self.ready:  # a second step on the same batch is computed for its client alone
            self.compute(slice(0, len(self.batches[0])) if self.fresh else slice(place, place + 1))
        self.ready.discard(place)
        row = self.vectors.G[0][place]
        G = row[: self.nP]
        raw, finite = G.clone(), self.finite[place]
        if plus is not None:
            finite = bool(torch.isfinite(G.add_(plus)).all())
        if not finite:
            row.zero_()
        if self.plan.clip is not None:
            row.mul_(torch.clamp(self.plan.clip / (torch.linalg.vector_norm(row) + 1e-6), max=1.0))
        self.vectors.step_row(place, lr)
        self.vectors.F[place] = self.statistics[place]
        return raw

    def compute(self, some: slice) -> None:
        """The gradients of the plain loss at these places."""
        x, y, share = (one[some] for one in self.batches)
        self.statistics[some] = self.vectors.F[some]
        leaves = leaves_of(self.plan.layout, self.vectors.P[0][some], self.statistics[some])
        grads = self.gradients(leaves, x, y, share)
        rows = [grad.detach().reshape(len(x), -1) for grad in grads]
        torch.cat(rows, dim=1, out=self.vectors.G[0][some, : self.nP])
        self.finite[some] = torch.isfinite(self.vectors.G[0][some]).all(1).tolist()
        self.ready.update(range(some.start, some.stop))
        self.fresh = False

    def gradients(self, leaves: Leaves, x: torch.Tensor, y: torch.Tensor, share: torch.Tensor) -> list[torch.Tensor]:
        if self.dense is not None:
            with torch.no_grad():
                network = self.dense.bind(leaves)
                log_probabilities = torch.log_softmax(network.forward(x, share), 1)
                return network.backward(logits_gradient(log_probabilities, y, share))
        parameters = leaves[: len(self.vectors.entries)]
        with torch.enable_grad():
            logits = self.network(leaves, x, share)
            loss = (F.cross_entropy(logits.transpose(1, 2), y, reduction="none") * share).sum()
            found = torch.autograd.grad(loss, parameters, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters)]


def second_models(runtime: Runtime, held: Sequence[Sequence[StackedModel]]) -> list[SecondModels]:
    """The first, second, … of every client's second models, as a stack each."""
    most = max((len(own) for own in held), default=0)
    return [
        SecondModels(runtime, [own[number] if number < len(own) else None for own in held]) for number in range(most)
    ]
