"""A-FLAMA, a reconstruction: weigh clients by accuracy on a validation set of the server (Wang et al., 2024).

    a_k = acc_k / Σ acc        shares below w_min = floor/m are raised to w_min

The article was not at hand and there is no code; FedNolowe's paper says only that weights past a threshold are
replaced. This is one reading of that sentence: label every number of it "reconstruction". Where nobody gets anything
right, everybody counts alike. It needs a proxy set, and each client's model passes over it once per round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from undrift.contract.job import eval_logits
from undrift.contract.parts import Replies, Server, Weighting
from undrift.core.errors import BadRequest


@dataclass(frozen=True)
class AFlama(Weighting):
    floor: float = 0.5  # of the uniform share 1/m

    needs: ClassVar = ("proxy",)

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= 1:
            raise BadRequest(f"aflama: floor must lie between 0 and 1, not {self.floor}")

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
    return (logits.argmax(1) == y).double().mean().item()
