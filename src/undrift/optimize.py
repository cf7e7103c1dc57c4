"""The local optimizers on a flat vector: clip, decay, step, mask, in this order. One serves the main loop and twins.

SGD is PyTorch's own fused kernel on the one flat tensor: one pass over memory instead of four. It is reached directly
because `torch.optim.SGD.step` costs 25 µs of Python on top, as much as a small model's whole step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from undrift.context import Plan


class SGD:
    def __init__(self, P: torch.Tensor, plan: Plan, buffer: torch.Tensor | None = None) -> None:
        self.P, self.plan = P, plan
        self.buffers = [torch.zeros_like(P) if buffer is None else buffer.to(P.device, copy=True)] * (plan.momentum > 0)

    def update(self, G: torch.Tensor, lr: float) -> None:
        torch._fused_sgd_(
            [self.P], [G], self.buffers, weight_decay=self.plan.weight_decay, momentum=self.plan.momentum, lr=lr,
            dampening=0.0, nesterov=False, maximize=False, is_first_step=False,
        )  # fmt: skip


class Adam:
    def __init__(self, P: torch.Tensor, plan: Plan) -> None:
        self.P, self.plan, self.steps = P, plan, 0
        self.buffers = [torch.zeros_like(P), torch.zeros_like(P)]

    def update(self, G: torch.Tensor, lr: float) -> None:
        mean, square = self.buffers
        if self.plan.weight_decay:
            G.add_(self.P, alpha=self.plan.weight_decay)
        self.steps += 1
        mean.lerp_(G, 0.1)
        square.mul_(0.999).addcmul_(G, G, value=0.001)
        scale = (1 - 0.999**self.steps) ** 0.5
        self.P.addcdiv_(mean, square.sqrt().div_(scale).add_(1e-8), value=-lr / (1 - 0.9**self.steps))


def optimizer(P: torch.Tensor, plan: Plan, buffer: torch.Tensor | None = None) -> SGD | Adam:
    return Adam(P, plan) if plan.optimizer == "adam" else SGD(P, plan, buffer)


def step(rule: SGD | Adam, G: torch.Tensor, lr: float, mask: torch.Tensor | None = None) -> None:
    """One step. `mask` holds back the *update*, momentum included: a zeroed gradient would still move under both
    momentum and decay."""
    if rule.plan.clip is not None:
        norm = torch.linalg.vector_norm(G)
        G.mul_(torch.clamp(rule.plan.clip / (norm + 1e-6), max=1.0))
    if mask is None:
        rule.update(G, lr)
        return
    kept = [(tensor, tensor.clone()) for tensor in (rule.P, *rule.buffers)]
    rule.update(G, lr)
    for tensor, before in kept:
        torch.where(mask, tensor, before, out=tensor)
