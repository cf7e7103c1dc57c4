"""Adaptive server updates: FedAdagrad, FedAdam, FedYogi (Reddi et al., ICLR 2021).

    Δ = mixed − θ        m ← β₁m + (1−β₁)Δ        θ ← θ + η m/(√v + τ)
    FedAdagrad v ← v + Δ²    FedAdam v ← β₂v + (1−β₂)Δ²    FedYogi v ← v − (1−β₂)Δ² sign(v − Δ²)

v begins at τ². On P only: BatchNorm statistics take the mixed values, as an extrapolated variance may be negative. The
trap: there is no bias correction, so this is not torch's Adam; and where v is small τ decides the step, not η.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from undrift.contract.parts import Replies, Server, ServerUpdate, Tree
from undrift.core.errors import BadRequest


@dataclass(frozen=True)
class FedAdagrad(ServerUpdate):
    lr: float = 0.01
    beta1: float = 0.9
    tau: float = 1e-3

    def __post_init__(self) -> None:
        check_ranges(self)

    def init_server(self, server: Server) -> Tree:
        return fresh(server, self.tau)

    def step(self, server: Server, mixed: torch.Tensor, replies: Replies) -> torch.Tensor:
        return stepped(self, server, mixed, lambda v, square: v + square)


@dataclass(frozen=True)
class FedAdam(ServerUpdate):
    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        check_ranges(self)

    def init_server(self, server: Server) -> Tree:
        return fresh(server, self.tau)

    def step(self, server: Server, mixed: torch.Tensor, replies: Replies) -> torch.Tensor:
        return stepped(self, server, mixed, lambda v, square: self.beta2 * v + (1 - self.beta2) * square)


@dataclass(frozen=True)
class FedYogi(ServerUpdate):
    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        check_ranges(self)

    def init_server(self, server: Server) -> Tree:
        return fresh(server, self.tau)

    def step(self, server: Server, mixed: torch.Tensor, replies: Replies) -> torch.Tensor:
        return stepped(self, server, mixed, lambda v, square: v - (1 - self.beta2) * square * (v - square).sign())


def fresh(server: Server, tau: float) -> Tree:
    nP = server.plan.layout.nP
    return {"m": torch.zeros(nP), "v": torch.full((nP,), tau**2)}


def stepped(part: Any, server: Server, mixed: torch.Tensor, second: Any) -> torch.Tensor:
    nP, theta = server.plan.layout.nP, server.plan.layout.trainable(server.vector)
    change = mixed[:nP] - theta
    m = part.beta1 * server.memory["m"] + (1 - part.beta1) * change
    v = second(server.memory["v"], change.square())
    server.memory = {"m": m, "v": v}
    return torch.cat([theta + part.lr * m / (v.sqrt() + part.tau), mixed[nP:]])


def check_ranges(part: Any) -> None:
    if not 0 < part.lr < math.inf or not 0 < part.tau < math.inf:
        raise BadRequest(f"{part.name}: lr and tau must be above 0, not {part.lr} and {part.tau}")
    for name in ("beta1", "beta2"):
        if not 0 <= getattr(part, name, 0.0) < 1:
            raise BadRequest(f"{part.name}: {name} must be at least 0 and below 1, not {getattr(part, name)}")
