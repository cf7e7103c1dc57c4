"""Local training only: a client never uses the global model. (FLIU's CLT.)

Hussaini, Theiß, Stein: Local Performance vs. Out-of-Distribution Generalization, 2025.

    θ_k ← E epochs from θ_k,   θ_k = Θ⁰ before the first

A client that joins late starts from Θ⁰ too, not from what it receives. The server still computes the mean of the local
models. Stage G evaluates it, and no client uses it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from undrift.contract.context import Message
from undrift.contract.parts import Job, Personalize


@dataclass(frozen=True)
class Local(Personalize):
    def init_client(self, job: Job) -> torch.Tensor:
        return job.initial

    def before_start(self, job: Job, own: torch.Tensor, server_message: Message) -> torch.Tensor:
        return own

    def start(self, job: Job, own: torch.Tensor) -> torch.Tensor:
        return own

    def after_training(self, job: Job, start: torch.Tensor, own: torch.Tensor) -> tuple[torch.Tensor, Message]:
        return job.trained, {}
