"""The local optimizers on a flat vector: clip, decay, step, mask, in this order. One serves the main loop and twins.

SGD is PyTorch's own fused kernel: one pass over memory instead of four. It is reached directly because
`torch.optim.SGD.step` costs 25 µs of Python on top, as much as a small model's whole step. It is always given the
model's tensors one by one, never the vector as a whole: the kernel rounds the odd elements at a tensor's end another
way, so the two would differ in bits, and one by one the gradients can be taken as autograd made them, uncopied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from undrift.core.vector import Flat

Tensors = Sequence[torch.Tensor]


class Settings(Protocol):
    """What an optimizer needs of a run's plan."""

    @property
    def optimizer(self) -> str: ...
    @property
    def momentum(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def clip(self) -> float | None: ...


class SGD:
    flat = False  # takes gradients tensor by tensor

    def __init__(self, model: Flat, plan: Settings, buffer: torch.Tensor | None = None) -> None:
        self.model, self.plan = model, plan
        self.P = model.views(model.P)
        self.buffers: list[torch.Tensor] = []
        self.V: list[torch.Tensor] = []
        if plan.momentum > 0:
            held = torch.zeros_like(model.P) if buffer is None else buffer.to(model.device, copy=True)
            self.buffers, self.V = [held], model.views(held)

    def update(self, grads: Tensors, lr: float) -> None:
        torch._fused_sgd_(
            self.P, list(grads), self.V, weight_decay=self.plan.weight_decay, momentum=self.plan.momentum, lr=lr,
            dampening=0.0, nesterov=False, maximize=False, is_first_step=False,
        )  # fmt: skip


class Adam:
    flat = True  # takes one gradient along P

    def __init__(self, model: Flat, plan: Settings) -> None:
        self.model, self.plan, self.steps = model, plan, 0
        self.buffers = [torch.zeros_like(model.P), torch.zeros_like(model.P)]

    def update(self, grads: Tensors, lr: float) -> None:
        (G,), P, (mean, square) = grads, self.model.P, self.buffers
        if self.plan.weight_decay:
            G.add_(P, alpha=self.plan.weight_decay)
        self.steps += 1
        mean.lerp_(G, 0.1)
        square.mul_(0.999).addcmul_(G, G, value=0.001)
        scale = (1 - 0.999**self.steps) ** 0.5
        P.addcdiv_(mean, square.sqrt().div_(scale).add_(1e-8), value=-lr / (1 - 0.9**self.steps))


def optimizer(model: Flat, plan: Settings, buffer: torch.Tensor | None = None) -> SGD | Adam:
    return Adam(model, plan) if plan.optimizer == "adam" else SGD(model, plan, buffer)


def step(rule: SGD | Adam, G: torch.Tensor, lr: float, mask: torch.Tensor | None = None) -> None:
    """One step along a flat gradient: clip, then `after_clip`."""
    clip(rule, G)
    after_clip(rule, G, lr, mask)


def clip(rule: SGD | Adam, G: torch.Tensor) -> None:
    if rule.plan.clip is not None:
        norm = torch.linalg.vector_norm(G)
        G.mul_(torch.clamp(rule.plan.clip / (norm + 1e-6), max=1.0))


def after_clip(rule: SGD | Adam, G: torch.Tensor, lr: float, mask: torch.Tensor | None = None) -> None:
    """The step along a clipped gradient. `mask` holds back the *update*, momentum included: a zeroed gradient would still
    move under both momentum and decay."""
    grads = [G] if rule.flat else rule.model.views(G)
    if mask is None:
        rule.update(grads, lr)
        return
    kept = [(tensor, tensor.clone()) for tensor in (rule.model.P, *rule.buffers)]
    rule.update(grads, lr)
    for tensor, before in kept:
        torch.where(mask, tensor, before, out=tensor)
