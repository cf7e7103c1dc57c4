"""`batch.gradient_at(P)`: the gradient of the whole composition at another point, for parts such as FedSAM.

A part that needs it comes after all others: it is given their gradient G at the live parameters, and `gradient_at(P)` is
that G at P. So `gradient_at(batch.P)` is G, bit for bit, and no other part's term is lost. Several such parts form a
chain: the second one sees the first one's gradient, at the live parameters and at any other point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from undrift.contract.context import Batch
from undrift.contract.job import ActivePart, Job
from undrift.contract.parts import defines
from undrift.core.determinism import drawing_from

if TYPE_CHECKING:
    from undrift.round.training import LocalTraining

Bound = tuple[Callable[..., Any], Job, Any]  # a hook with its part's job and scratch


def bound(parts: Sequence[ActivePart], hook: str) -> list[Bound]:
    """A hook of every part that defines it, bound to what it is called with."""
    if not parts:
        return []
    return [(getattr(one.part, hook), one.job, one.scratch) for one in parts if defines(one.part, hook)]


def needs_second(one: ActivePart) -> bool:
    return "gradient_at" in one.part.needs


class SecondGradient:
    """The gradient hooks that look at another point, for one client's training."""

    def __init__(self, training: LocalTraining, parts: Sequence[ActivePart]) -> None:
        self.training, self.model = training, training.model
        self.hooks = bound([one for one in parts if needs_second(one)], "gradient")

    def watch(self, batch: Batch) -> None:
        """Note the random draws before the batch's forward pass, so that it can be repeated."""
        self.draws = torch.get_rng_state()

    def correct(self, G: torch.Tensor, batch: Batch) -> None:
        """Call the hooks, each with a gradient of all that came before it. Afterwards, in `after_step`, `gradient_at` is
        the gradient of all parts."""
        self.mask(G)
        self.call(G, batch, len(self.hooks))
        batch.recompute = partial(self.at, first=len(self.hooks))

    def call(self, G: torch.Tensor, batch: Batch, first: int) -> None:
        for number, (hook, job, scratch) in enumerate(self.hooks[:first]):
            batch.recompute = partial(self.at, first=number)
            hook(self.model.P, G, batch, job, scratch)

    def at(self, batch: Batch, P: torch.Tensor, first: int) -> torch.Tensor:
        """The gradient at P, with all hooks of parts that do not look at another point and the `first` of those that do."""
        training, model = self.training, self.model
        if P.shape != model.P.shape:
            raise ValueError(
                f"gradient_at takes a vector along the parameters, of shape {tuple(model.P.shape)}, not {tuple(P.shape)}"
            )
        kept = model.kept()
        model.P.copy_(P.detach())
        other = Batch(batch.x, batch.y, batch.index, model.P, batch.epoch, again=True)
        G = torch.empty_like(model.P)
        try:
            with drawing_from(self.draws.clone()), torch.enable_grad():
                model.gradient(training.loss(other), into=G)
            training.data.samples_trained += len(batch.y)
            if training.raw_gradient:
                other.gradient = G.clone()
            if training.gradient_hooks:
                training.correct(G, other, training.gradient_hooks)
            self.mask(G)
            self.call(G, other, first)
        finally:
            model.load(*kept)
        return G

    def mask(self, G: torch.Tensor) -> None:
        """Zero where nothing may move in this epoch: a step there belongs to no part."""
        if self.training.mask is not None:
            G.mul_(self.training.mask)
