"""Adaptive server updates: FedAdagrad, FedAdam, FedYogi.

Reddi et al.: Adaptive Federated Optimization, ICLR 2021.

    Δ = mixed − θ        m ← β₁m + (1−β₁)Δ        θ ← θ + η m/(√v + τ)
    FedAdagrad v ← v + Δ²    FedAdam v ← β₂v + (1−β₂)Δ²    FedYogi v ← v − (1−β₂)Δ² sign(v − Δ²)

v starts at τ². On P only: BatchNorm statistics take the mixed values, as an extrapolated variance may be negative. The
trap: there is no bias correction, so this is not torch's Adam. If v is small, τ determines the step, not η.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from undrift.contract.parts import Range, Replies, Server, ServerUpdate, Tree

Positive = Annotated[float, Range(above=0)]
Decay = Annotated[float, Range(least=0, below=1)]


@dataclass(frozen=True)
class FedAdagrad(ServerUpdate):
    lr: Positive = 0.01
    beta1: Decay = 0.9
    tau: Positive = 1e-3

    linear: ClassVar = True

    def init_server(self, server: Server) -> Tree:
        return fresh(server, self.tau)

    def step(self, server: Server, mixed: torch.Tensor, replies: Replies) -> torch.Tensor:
        return stepped(self, server, mixed, lambda v, square: v + square)


@dataclass(frozen=True)
class FedAdam(ServerUpdate):
    lr: Positive = 0.01
    beta1: Decay = 0.9
    beta2: Decay = 0.99
    tau: Positive = 1e-3

    linear: ClassVar = True

    def init_server(self, server: Server) -> Tree:
        return fresh(server, self.tau)

    def step(self, server: Server, mixed: torch.Tensor, replies: Replies) -> torch.Tensor:
        return stepped(self, server, mixed, lambda v, square: self.beta2 * v + (1 - self.beta2) * square)


@dataclass(frozen=True)
class FedYogi(ServerUpdate):
    lr: Positive = 0.01
    beta1: Decay = 0.9
    beta2: Decay = 0.99
    tau: Positive = 1e-3

    linear: ClassVar = True

    def init_server(self, server: Server) -> Tree:
        return fresh(server, self.tau)

    def step(self, server: Server, mixed: torch.Tensor, replies: Replies) -> torch.Tensor:
        return stepped(self, server, mixed, lambda v, square: v - (1 - self.beta2) * square * (v - square).sign())


def fresh(server: Server, tau: float) -> Tree:
    nP = server.plan.layout.nP
    return {"m": torch.zeros(nP), "v": torch.full((nP,), tau**2)}


def stepped(
    part: FedAdagrad | FedAdam | FedYogi,
    server: Server,
    mixed: torch.Tensor,
    second: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],  # the next v from (v, Δ²)
) -> torch.Tensor:
    nP, theta = server.plan.layout.nP, server.plan.layout.trainable(server.vector)
    change = mixed[:nP] - theta
    m = part.beta1 * server.memory["m"] + (1 - part.beta1) * change
    v = second(server.memory["v"], change.square())
    server.memory = {"m": m, "v": v}
    return torch.cat([theta + part.lr * m / (v.sqrt() + part.tau), mixed[nP:]])
