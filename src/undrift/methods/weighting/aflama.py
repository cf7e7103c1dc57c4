"""A-FLAMA, a reconstruction: clients are weighted by accuracy on a validation set of the server.

Wang et al.: Accuracy-based Federated Learning with Adaptive Model Aggregation, 2024.

    a_k = acc_k / Σ acc        shares below w_min = floor/m are raised to w_min

The article was not available and there is no code. FedNolowe's paper says only that weights past a threshold are
replaced. This is one reading of that sentence: label every number of it "reconstruction". If no client gets any sample
right, all clients count the same. Of sequences, masks and several labels acc is the share that is right, the mean over
the samples; a task without right and wrong (regression) is refused. It needs a proxy set, and each client's model
passes over it once per round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch

from undrift.contract.client_data import eval_logits
from undrift.contract.parts import Range, Replies, Server, Weighting


@dataclass(frozen=True)
class AFlama(Weighting):
    floor: Annotated[float, Range(least=0, most=1)] = 0.5  # of the uniform share 1/m

    needs: ClassVar = ("proxy", "errors")

    def weights(self, server: Server, replies: Replies) -> torch.Tensor:
        accuracy = torch.tensor([accuracy_of(server, vector) for vector in replies.vectors], dtype=torch.float64)
        server.note("status", "reconstruction")
        for client, value in zip(replies.ids, accuracy.tolist()):
            server.note("accuracy", value, client=client)
        if not accuracy.sum() > 0:
            return torch.ones_like(accuracy)
        return (accuracy / accuracy.sum()).clamp(min=self.floor / len(replies))


def accuracy_of(server: Server, vector: torch.Tensor) -> float:
    assert server.proxy is not None
    x, y = server.proxy
    logits, _ = eval_logits(server.model(vector), x, lambda rows: rows)
    error = server.plan.task.error(logits, y)
    assert error is not None
    return (1 - error.double()).mean().item()
