"""SCAFFOLD: control variates that correct every local step.

Karimireddy et al.: SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020.

A client's gradient points to its own optimum. SCAFFOLD remembers where each client's gradients pointed last time (its
control c_k) and where the gradients of all clients did (c), and corrects every local step by the difference:

    each step    g ← g + c − c_k
    afterwards   c_k⁺ = c_k − c + (θ_start − θ_trained) / (a η)
    server       c ← c + (1/N) Σ_k (c_k⁺ − c_k)

The trap: a is the *normalised* number of steps. With momentum one gradient moves the model many times, and dividing by
the plain number of steps inflates c_k by up to 1/(1−ρ), which diverges.

`scaled` is the FedDyn repository's form: c enters the gradient divided by s_k = n_k N/n (and c_k⁺ as above, with c
unscaled), and the change is uploaded times s_k. Its limit is the size-weighted optimum, that of the plain form is the
uniform one. A client far below the mean size multiplies c, which diverges at rates where the plain form is stable.
(That repository also gives every client the same number of steps. Here each client makes its own number.) `normalise`
divides the measured control by the mean sample weight, for samplings whose weights change the gradient's scale. FLOOD's
release corrects after the momentum step and measures c_k in an extra epoch. FedDyn's release divides by the undecayed
rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from undrift.contract.context import Message
from undrift.contract.declare import Along, Declaration
from undrift.contract.parts import Batch, Job, Objective, Replies, Server, server_sum


@dataclass(frozen=True)
class Scaffold(Objective):
    scaled: bool = False
    normalise: bool = False

    lockstep: ClassVar = True
    needs: ClassVar = ("effective_steps",)
    linear: ClassVar = True
    uplink: ClassVar[Declaration] = {"change": Along("P")}
    downlink: ClassVar[Declaration] = {"control": Along("P")}

    def init_server(self, server: Server) -> torch.Tensor:
        return torch.zeros(server.plan.layout.nP)

    def init_client(self, job: Job) -> torch.Tensor:
        return torch.zeros(job.plan.layout.nP)

    def broadcast(self, server: Server) -> dict[str, torch.Tensor]:
        return {"control": server.memory}

    def before_training(self, job: Job, control: torch.Tensor, server_message: Message) -> dict[str, torch.Tensor]:
        return {
            "server": server_message["control"],
            "correction": server_message["control"] / self.scale(job) - control,
        }

    def gradient(
        self, P: torch.Tensor, G: torch.Tensor, batch: Batch, job: Job, scratch: dict[str, torch.Tensor]
    ) -> None:
        G.add_(scratch["correction"])

    def stack_scratches(self, scratches: Sequence[Any]) -> dict[str, torch.Tensor]:
        return {"correction": torch.stack([scratch["correction"] for scratch in scratches])}

    def after_training(
        self, job: Job, scratch: dict[str, torch.Tensor], control: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        assert job.stats.effective_steps is not None
        del scratch["correction"]  # vectors may be large: as few of them as possible at a time
        mean_gradient = job.plan.layout.trainable(job.start - job.trained).div_(job.stats.effective_steps * job.lr)
        new = (control - scratch["server"]).add_(mean_gradient)
        del mean_gradient
        if self.normalise:
            new.div_(job.stats.mean_weight or 1.0)
        return new, {"change": (new - control).mul_(self.scale(job))}

    def receive(self, server: Server, replies: Replies) -> None:
        changes = [message["change"] for message in replies.client_messages]
        server.memory = server.memory + server_sum(changes, 1 / server.plan.clients)

    def scale(self, job: Job) -> float:
        """s_k, the client's size relative to the mean."""
        return job.n * job.plan.clients / job.plan.total if self.scaled else 1.0
