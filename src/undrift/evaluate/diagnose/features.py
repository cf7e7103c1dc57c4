"""The features that enter the head. `effective_rank` of their covariance is exp of the entropy of its normalised eigenvalues:
how many directions the features use (k equally strong ones give k). Measured for the evaluated model and for every participant's
trained model, on the first `samples` of the test set: local training on few classes makes it fall (dimension collapse).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from undrift.contract.client_data import eval_logits
from undrift.core.errors import BadRequest
from undrift.evaluate.diagnose.base import Ask, Diagnostic, Findings, RoundView, loaded, piece
from undrift.round.orders import Order

if TYPE_CHECKING:
    from undrift.round.runtime import Runtime


@dataclass(frozen=True)
class Features(Diagnostic):
    samples: int = 2000
    name = "features"

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise BadRequest(f"features: samples must be at least 2, not {self.samples}")

    def check(self, runtime: Runtime) -> None:
        has_features(runtime, self.name)

    def observe(self, view: RoundView, found: Findings, ask: Ask) -> None:
        trained = [order for _, order in view.trained()]
        whole, *each = ask([piece(view, 0, view.after.evaluated), *trained])
        found.number("effective_rank", whole["rank"], data="global")
        for order, one in zip(trained, each):
            found.number("effective_rank", one["rank"], order.client, "L2", "global")

    def work(self, runtime: Runtime, order: Order) -> dict[str, Any]:
        return {"rank": effective_rank(features_of(runtime, order, self.samples))}


def has_features(runtime: Runtime, name: str) -> None:
    if runtime.plan.layout.head is None:
        raise BadRequest(
            f"{name} looks at what enters the last linear layer, and this model's logits do not come out of one"
        )


def features_of(runtime: Runtime, order: Order, samples: int) -> torch.Tensor:
    flat = loaded(runtime, order)
    flat.watch()
    features = eval_logits(
        flat, runtime.federation.test_x[:samples].to(flat.device), runtime.network_input, features=True
    )[1]
    assert features is not None
    return features.cpu()


def effective_rank(features: torch.Tensor) -> float:
    """exp(−Σ λ ln λ) over the normalised eigenvalues λ of the covariance; 0 where all features are the same."""
    centred = features.double() - features.double().mean(0)
    strength = torch.linalg.svdvals(centred).square()
    if strength.sum() <= 0:
        return 0.0
    share = strength / strength.sum()
    return torch.special.entr(share).sum().exp().item()
