"""MOON: features are pulled towards the received model's and pushed away from the last local model's.

Li, He, Song: Model-Contrastive Federated Learning, CVPR 2021.

    loss = CE + μ · mean(−log[e^(cos(f, f_g)/τ) / (e^(cos(f, f_g)/τ) + e^(cos(f, f_p)/τ))])

f, f_g, f_p are the features of the live, the received and the client's previous model (θ⁰ at its first participation).

The trap: both reference networks must be frozen *and* in eval mode. FLOOD's copy leaves one in train mode, so its
BatchNorm statistics drift. FedDecorr's copy omits τ. `head=True` compares the features through a projection head
(linear, ReLU, linear to 256), trained alongside by plain SGD and averaged by size. MOON's own network has that head in
front of its classifier. A part cannot change the network, so here it is used for the comparison only. FLOOD's MOON has
none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch.nn import functional as F

from undrift.contract.context import Message
from undrift.contract.declare import Array, Declaration
from undrift.contract.parts import Batch, Job, Objective, Plan, Problem, Range, Replies, Server, Tree, server_sum


@dataclass(frozen=True)
class Moon(Objective):
    mu: Annotated[float, Range(least=0)] = 1.0
    tau: Annotated[float, Range(above=0)] = 0.5
    head: bool = False
    width: Annotated[int, Range(above=0)] = 256  # of the projection
    features: int | None = None  # inputs of the model's last linear layer; `resolve` reads them from the layout

    needs: ClassVar = ("features",)
    lockstep: ClassVar = True

    def passes(self, round: int) -> Sequence[str]:
        return ("received",)

    def resolve(self, plan: Plan) -> Moon:
        if not self.head or plan.layout.head is None:
            return self
        return replace(self, features=plan.layout.entry(f"{plan.layout.head}.weight").shape[1])

    @property
    def uplink(self) -> Declaration:
        return {"head": Array(self.size)} if self.size else {}

    @property
    def downlink(self) -> Declaration:
        return self.uplink

    @property
    def size(self) -> int:
        """Parameters of the projection head: D → D → width."""
        D = self.features or 0
        return D * (D + 1) + self.width * (D + 1) if self.head and D else 0

    def init_server(self, server: Server) -> torch.Tensor | None:
        return torch.rand(self.size, generator=server.stream("head")).sub(0.5).mul(0.1) if self.size else None

    def broadcast(self, server: Server) -> dict[str, torch.Tensor]:
        return {"head": server.memory} if self.size else {}

    def init_client(self, job: Job) -> Tree:
        return {"model": job.initial, "head": None}

    def before_training(self, job: Job, state: Any, server_message: Message) -> dict[str, Any]:
        here = server_message.get("head")
        there = state["head"] if state["head"] is not None else here
        near, far = job.reference(job.received), job.reference(state["model"])
        own = None if here is None else here.clone().to(job.received.device)
        return {"near": near, "far": far, "own": own, "heads": (here, there)}

    def loss(self, batch: Batch, job: Job, scratch: dict[str, Any]) -> torch.Tensor:
        assert batch.features is not None
        (_, near), (_, far) = scratch["near"](batch), scratch["far"](batch)
        if scratch["own"] is None:
            return self.mu * contrast(batch.features, near, far, self.tau)
        here, there = scratch["heads"]
        if not batch.again:
            scratch["before"] = scratch["own"]
        own = scratch["before"].detach().requires_grad_()
        near, far = self.project(here, near), self.project(there, far)
        term = self.mu * contrast(self.project(own, batch.features), near, far, self.tau)
        if batch.again:
            return term
        (g,) = torch.autograd.grad(term, own, retain_graph=True)
        g = torch.where(torch.isfinite(g).all(), g, 0.0)
        scratch["own"] = own.detach() - job.lr * g
        return term

    def after_training(self, job: Job, scratch: dict[str, Any], state: Any) -> tuple[Tree, Message]:
        own = scratch["own"]
        return {"model": job.trained, "head": own}, ({} if own is None else {"head": own})

    @property
    def linear(self) -> bool:
        return not self.size

    def receive(self, server: Server, replies: Replies) -> None:
        if self.size:
            shares = [n / sum(replies.n) for n in replies.n]
            server.memory = server_sum([message["head"] for message in replies.client_messages], shares)

    def project(self, head: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        D = f.shape[1]
        A, a, B, b = torch.split(head.to(f.device), [D * D, D, self.width * D, self.width])
        return F.linear(F.linear(f, A.view(D, D), a).relu(), B.view(self.width, D), b)

    def check(self, plan: Plan) -> Iterable[Problem]:
        if self.mu == 0:
            yield Problem("warning", "moon with mu = 0 is plain training at the cost of two more forward passes")


def contrast(f: torch.Tensor, near: torch.Tensor, far: torch.Tensor, tau: float) -> torch.Tensor:
    """−log[e^a/(e^a + e^b)] = softplus(b − a), a and b the cosines over τ."""
    cosines = [F.cosine_similarity(f, other, dim=1, eps=1e-8) for other in (near, far)]
    return F.softplus((cosines[1] - cosines[0]) / tau).mean()
