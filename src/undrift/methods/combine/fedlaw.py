"""FedLAW: the server learns the weights and a shrinking factor on a proxy set.

Li et al.: Revisiting Weighted Aggregation in Federated Learning with Neural Networks, ICML 2023.

    θ = γ Σ_k λ_k θ_k        λ = softmax(x), γ = e^g        minimise the task's loss CE(θ) on the proxy set over (x, g) by Adam

x starts at the log of the size shares and g at 0, so zero steps give size weights. `quadratic`: λ ∝ x², γ = g². The
authors start the exponential form from the sizes, and the quadratic one from equal weights: `start=uniform`. As θ is a
mixture, dCE/dλ_k = γ⟨∇CE, θ_k⟩: one backward pass per batch and m inner products. γ shrinks P only and is clamped to
[0.5, 1.5]. BatchNorm uses the batch's statistics during learning, and its buffers are estimated again on the proxy set
at the end. Dropout is off.

The trap: the authors take the proxy set from the test set, which leaks. Here it is split off the training data before
partitioning. Their server model runs in train mode and the clients' buffers are never averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch

from undrift.contract.parts import Combine, Range, Replies, Server, server_sum
from undrift.core.vector import Flat

BatchNorm = torch.nn.modules.batchnorm._BatchNorm
GAMMA = (0.5, 1.5)


@dataclass(frozen=True)
class FedLAW(Combine):
    epochs: Annotated[int, Range(least=0)] = 20
    lr: Annotated[float, Range(above=0)] = 0.01
    batch: Annotated[int, Range(least=1)] = 128
    form: Literal["exponential", "quadratic"] = "exponential"
    start: Literal["size", "uniform"] = "size"
    halve: Annotated[int, Range(least=1)] = 20  # epochs after which the rate is halved

    needs: ClassVar = ("proxy",)
    ignores_weights: ClassVar = True

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        assert server.proxy is not None
        x, y = server.proxy
        nP = server.plan.layout.nP
        n = torch.tensor(replies.n, dtype=torch.float64)
        free, g = self.initial(n)
        rule = Adam([free, g])
        flat = server.model(server_sum(replies.vectors, (n / n.sum()).tolist()))
        G = torch.empty_like(flat.P)
        draw, losses = server.stream("order"), list[float]()
        with batchnorm_training(flat):
            for epoch in range(self.epochs):
                lr, total = self.lr * 0.5 ** (epoch // self.halve), 0.0
                for index in even_batches(torch.randperm(len(y), generator=draw), self.batch):
                    share, gamma = self.mixture(free, g, n)
                    P = server_sum([vector[:nP] for vector in replies.vectors], share.tolist())
                    flat.P.copy_(gamma.item() * P)
                    loss = server.plan.task.mean_loss(flat(x[index]), y[index])
                    flat.gradient(loss, into=G)
                    slope = torch.stack([torch.dot(G.cpu(), vector[:nP]).double() for vector in replies.vectors])
                    free.grad = g.grad = None
                    torch.autograd.backward([share, gamma], [gamma.detach() * slope, torch.dot(slope, share.detach())])
                    rule.step(lr)
                    with torch.no_grad():
                        g.clamp_(*(math.log(end) if self.form == "exponential" else math.sqrt(end) for end in GAMMA))
                    total += loss.item() * len(index)
                losses.append(total / len(y))
        share, gamma = self.mixture(free, g, n)
        self.note_result(server, replies, share, gamma, losses)
        out = server_sum(replies.vectors, share.tolist())
        out[:nP] *= gamma.item()
        return with_new_statistics(server.model(out), x, self.batch) if self.epochs else out

    def initial(self, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The free numbers (x, g) at γ = 1 and size or equal weights. The exponential form is relative to the sizes."""
        if self.form == "exponential":
            free = torch.zeros_like(n) if self.start == "size" else -n.log()
            return free.requires_grad_(), torch.zeros((), dtype=n.dtype).requires_grad_()
        share = n / n.sum() if self.start == "size" else torch.full_like(n, 1 / len(n))
        return share.sqrt().requires_grad_(), torch.ones((), dtype=n.dtype).requires_grad_()

    def mixture(self, free: torch.Tensor, g: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        raw = n * free.exp() if self.form == "exponential" else free.square()
        return raw / raw.sum(), g.exp() if self.form == "exponential" else g.square()

    def note_result(
        self, server: Server, replies: Replies, share: torch.Tensor, gamma: torch.Tensor, losses: list[float]
    ) -> None:
        for client, value in zip(replies.ids, share.tolist()):
            server.note("weight", value, client=client)
        server.note("gamma", gamma.item())
        server.note("proxy_loss", losses)


class Adam:
    """Adam with betas 0.5 and 0.999 on a few numbers. torch.optim's Adam takes seconds to import."""

    def __init__(self, numbers: list[torch.Tensor]) -> None:
        self.numbers, self.steps = numbers, 0
        self.moments = [(torch.zeros_like(number), torch.zeros_like(number)) for number in numbers]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        self.steps += 1
        for number, (mean, square) in zip(self.numbers, self.moments):
            assert number.grad is not None
            mean.lerp_(number.grad, 0.5)
            square.lerp_(number.grad.square(), 0.001)
            scale = (square / (1 - 0.999**self.steps)).sqrt() + 1e-8
            number -= lr * mean / (1 - 0.5**self.steps) / scale


@contextmanager
def batchnorm_training(flat: Flat) -> Iterator[None]:
    """BatchNorm in train mode and everything else (dropout) in eval mode. All is in eval mode afterwards."""
    norms = batchnorms(flat)
    flat.module.eval()
    for norm in norms:
        norm.train()
    try:
        yield
    finally:
        for norm in norms:
            norm.eval()


def batchnorms(flat: Flat) -> list[BatchNorm]:
    return [child for child in flat.module.modules() if isinstance(child, BatchNorm)]


def even_batches(order: torch.Tensor, size: int) -> Sequence[torch.Tensor]:
    """Batches whose sizes differ by at most one. None has a single sample unless there is only one."""
    return order.tensor_split(math.ceil(len(order) / size))


def with_new_statistics(flat: Flat, x: torch.Tensor, size: int) -> torch.Tensor:
    """The network's vector, with BatchNorm statistics replaced by the mean over the proxy set's batches."""
    batches = even_batches(torch.arange(len(x)), size)
    norms = batchnorms(flat)
    if not norms or (flat.layout.batchnorm_needs_two and len(x) == 1):
        return flat.vector.cpu().clone()
    momenta = [norm.momentum for norm in norms]
    try:
        with batchnorm_training(flat), torch.no_grad():
            for count, index in enumerate(batches):
                for norm in norms:
                    norm.momentum = 1 / (count + 1)
                flat(x[index])
    finally:
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum
    return flat.vector.cpu().clone()
