"""Local training only (FLIU's CLT): the federation is watched, never listened to.

    θ_k ← E epochs from θ_k,   θ_k = Θ⁰ before the first

A client that joins late starts from Θ⁰ too, not from what it receives. The mean of the local models is still taken, as
the never-used global model that stage G shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from undrift.contract.parts import Job, Personalize


@dataclass(frozen=True)
class Local(Personalize):
    def init_client(self, job: Job) -> torch.Tensor:
        return job.initial

    def before_start(self, job: Job, own: torch.Tensor, server_message: dict[str, Any]) -> torch.Tensor:
        return own

    def start(self, job: Job, own: torch.Tensor) -> torch.Tensor:
        return own

    def after_training(self, job: Job, begun: torch.Tensor, own: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
        return job.trained, {}
