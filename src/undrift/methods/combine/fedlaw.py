"""FedLAW: the server learns the weights and a shrinking factor on a proxy set (Li et al., ICML 2023).

    θ = γ Σ_k λ_k θ_k        λ = softmax(x), γ = e^g        minimise CE(θ) on the proxy set over (x, g) by Adam

x begins at the log of the size shares and g at 0, so no steps are size weights. `quadratic`: λ ∝ x², γ = g². As θ is a
mixture, dCE/dλ_k = γ⟨∇CE, θ_k⟩: one backward pass per batch and m inner products. γ shrinks P only and is held within
[0.5, 1.5]. BatchNorm uses the batch's statistics while learning, and its buffers are estimated anew on the proxy set at
the end; dropout rests.

The trap: the authors take the proxy set from the test set, which leaks; here it is carved from the training data before
partitioning. Their server model runs in train mode and the clients' buffers are never averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch.nn import functional as F

from undrift.contract.parts import Combine, Replies, Server, server_sum
from undrift.core.errors import BadRequest
from undrift.core.vector import Flat

BATCHNORM = torch.nn.modules.batchnorm._BatchNorm
GAMMA = (0.5, 1.5)


@dataclass(frozen=True)
class FedLAW(Combine):
    epochs: int = 20
    lr: float = 0.01
    batch: int = 128
    form: Literal["exponential", "quadratic"] = "exponential"
    halve: int = 20  # epochs after which the rate is halved

    needs: ClassVar = ("proxy",)
    ignores_weights: ClassVar = True

    def __post_init__(self) -> None:
        if self.epochs < 0 or not 0 < self.lr < math.inf or self.batch < 1 or self.halve < 1:
            raise BadRequest("fedlaw: epochs must be at least 0, lr above 0, batch and halve at least 1, not "
                             f"{self.epochs}, {self.lr}, {self.batch}, {self.halve}")  # fmt: skip
        if self.form not in ("exponential", "quadratic"):
            raise BadRequest(f"fedlaw: form must be exponential or quadratic, not {self.form!r}")

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        assert server.proxy is not None
        x, y = server.proxy
        nP = server.plan.layout.nP
        n = torch.tensor(replies.n, dtype=torch.float64)
        free, g = self.begin_at(n)
        rule = Adam([free, g])
        flat = server.model(server_sum(replies.vectors, (n / n.sum()).tolist()))
        G = torch.empty_like(flat.P)
        draw, losses = server.stream("order"), list[float]()
        with as_while_learning(flat):
            for epoch in range(self.epochs):
                lr, total = self.lr * 0.5 ** (epoch // self.halve), 0.0
                for index in even_batches(torch.randperm(len(y), generator=draw), self.batch):
                    share, gamma = self.mixture(free, g, n)
                    P = server_sum([vector[:nP] for vector in replies.vectors], share.tolist())
                    flat.P.copy_(gamma.item() * P)
                    loss = F.cross_entropy(flat(x[index]), y[index])
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
        self.say(server, replies, share, gamma, losses)
        out = server_sum(replies.vectors, share.tolist())
        out[:nP] *= gamma.item()
        return estimated_anew(server.model(out), x, self.batch) if self.epochs else out

    def begin_at(self, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The free numbers at size weights and γ = 1. The exponential form is written relative to the sizes."""
        if self.form == "exponential":
            return torch.zeros_like(n).requires_grad_(), torch.zeros((), dtype=n.dtype).requires_grad_()
        return (n / n.sum()).sqrt().requires_grad_(), torch.ones((), dtype=n.dtype).requires_grad_()

    def mixture(self, free: torch.Tensor, g: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        raw = n * free.exp() if self.form == "exponential" else free.square()
        return raw / raw.sum(), g.exp() if self.form == "exponential" else g.square()

    def say(
        self, server: Server, replies: Replies, share: torch.Tensor, gamma: torch.Tensor, losses: list[float]
    ) -> None:
        for client, value in zip(replies.ids, share.tolist()):
            server.note("weight", value, client=client)
        server.note("gamma", gamma.item())
        server.note("proxy_loss", losses)


class Adam:
    """Adam with betas 0.5 and 0.999 on a few numbers; torch.optim's takes seconds to import."""

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


class as_while_learning:  # noqa: N801
    """BatchNorm in train mode, everything else (dropout) at rest; put back at the end."""

    def __init__(self, flat: Flat) -> None:
        self.norms = [child for child in flat.module.modules() if isinstance(child, BATCHNORM)]
        flat.module.eval()

    def __enter__(self) -> None:
        for norm in self.norms:
            norm.train()

    def __exit__(self, *exception: object) -> None:
        for norm in self.norms:
            norm.eval()


def even_batches(order: torch.Tensor, size: int) -> Sequence[torch.Tensor]:
    """Batches whose sizes differ by at most one, so that none has a single sample unless there is only one."""
    return order.tensor_split(math.ceil(len(order) / size))


def estimated_anew(flat: Flat, x: torch.Tensor, size: int) -> torch.Tensor:
    """The network's vector with BatchNorm statistics that are the mean over the proxy set's batches."""
    batches = even_batches(torch.arange(len(x)), size)
    norms = [child for child in flat.module.modules() if isinstance(child, BATCHNORM)]
    if not norms or (flat.layout.batchnorm_needs_two and len(x) == 1):
        return flat.vector.cpu().clone()
    momenta = [norm.momentum for norm in norms]
    try:
        with as_while_learning(flat), torch.no_grad():
            for seen, index in enumerate(batches):
                for norm in norms:
                    norm.momentum = 1 / (seen + 1)
                flat(x[index])
    finally:
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum
    return flat.vector.cpu().clone()
