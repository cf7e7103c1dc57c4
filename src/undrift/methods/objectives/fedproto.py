"""FedProto: clients agree on class prototypes, the mean features of a class, instead of on a model.

Tan et al.: FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI 2022.

    client    c_kj = mean feature of its samples of class j, by the trained model       sent with the counts n_kj
    server    c_j = Σ_k n_kj c_kj / Σ_k n_kj                                            over those who answered
    local     loss = CE + λ · mean_i ‖f(x_i) − c_{y_i}‖² / D                            D features

In the paper nothing but prototypes is exchanged. So the published name keeps all entries of the model private, and a
client uses its own model. The part alone, `objective.fedproto`, adds the term to whatever the rest of the method
averages. Features are what enters the last linear layer. A class that nobody has yet adds nothing; one that nobody had
in this round keeps its prototype.

The authors' code takes the plain mean over clients, whatever their counts, and collects features while the last epoch
moves the model; here they come from one pass with the trained model, in eval mode. It also reports a
classification by the nearest prototype; a client here predicts with its own head (their figure "without protos"). The
trap: prototypes of different initial models have nothing in common, so all clients must start from one θ⁰ or let λ pull
them together first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch

from undrift.contract.context import Message
from undrift.contract.declare import Array, Declaration
from undrift.contract.parts import Batch, Job, Objective, Plan, Range, Replies, Server, Tree


@dataclass(frozen=True)
class FedProto(Objective):
    lam: Annotated[float, Range(least=0)] = 1.0
    size: int | None = None  # classes times features; `resolve` reads it from the layout

    lockstep: ClassVar = True
    needs: ClassVar = ("features", "labels")

    def resolve(self, plan: Plan) -> FedProto:
        if plan.layout.head is None:
            return self
        features = plan.layout.entry(f"{plan.layout.head}.weight").shape[1]
        return replace(self, size=plan.classes * features)

    @property
    def uplink(self) -> Declaration:
        return {"prototypes": Array(self.size or 0), "counts": Array("classes")}

    @property
    def downlink(self) -> Declaration:
        return self.uplink

    def init_server(self, server: Server) -> Tree:
        return {"prototypes": torch.zeros(self.size or 0), "counts": torch.zeros(server.plan.classes)}

    def broadcast(self, server: Server) -> Message:
        return dict(server.memory)

    def before_training(self, job: Job, state: Any, server_message: Message) -> Message:
        classes = job.plan.classes
        return {
            "prototypes": server_message["prototypes"].view(classes, -1),
            "known": (server_message["counts"] > 0).float(),
        }

    def loss(self, batch: Batch, job: Job, scratch: Message) -> torch.Tensor:
        assert batch.features is not None
        away: torch.Tensor = (batch.features - scratch["prototypes"][batch.y]).square().mean(1)
        known: torch.Tensor = scratch["known"][batch.y]
        return self.lam * (away * known).mean()

    def passes(self, round: int) -> tuple[str, ...]:
        return ("trained",)

    def after_training(self, job: Job, scratch: Message, state: Any) -> tuple[Tree, Message]:
        features = job.scored("trained").features
        assert features is not None
        sums = torch.zeros_like(scratch["prototypes"]).index_add_(0, job.labels, features)
        counts = job.counts.float()
        return state, {"prototypes": (sums / counts.clamp(min=1)[:, None]).flatten(), "counts": counts}

    def receive(self, server: Server, replies: Replies) -> None:
        classes = server.plan.classes
        n = torch.stack([m["counts"].clamp(0, float(size)) for m, size in zip(replies.client_messages, replies.n)])
        theirs = torch.stack([message["prototypes"].view(classes, -1) for message in replies.client_messages])
        total = n.double().sum(0)
        mean = (n.double()[:, :, None] * theirs).sum(0) / total.clamp(min=1)[:, None]
        old = server.memory["prototypes"].view(classes, -1)
        prototypes = torch.where(total[:, None] > 0, mean.float(), old)
        counts = torch.where(total > 0, total.float(), server.memory["counts"])
        server.memory = {"prototypes": prototypes.flatten(), "counts": counts}
