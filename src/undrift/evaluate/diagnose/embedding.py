"""What local training does to the features of a client (FedBSS, Fig 3): those of the first `samples` of the test set under the
model it was sent and under the one it trained, projected on the two main directions of both together, so that movement in
the picture is drift. One picture per client in `clients`: {"before": [[x, y], …], "after": …, "labels": […]}. The number
`feature_shift` is how far a sample moved on average, divided by the spread before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from undrift.core.errors import BadRequest
from undrift.evaluate.diagnose.base import Ask, Diagnostic, Findings, RoundView
from undrift.evaluate.diagnose.features import features_of, has_features
from undrift.round.orders import Order

if TYPE_CHECKING:
    from undrift.round.runtime import Runtime


@dataclass(frozen=True)
class Embedding(Diagnostic):
    samples: int = 500
    clients: tuple[int, ...] = ()  # none: the first participant
    name = "embedding"
    needs = ("labels",)

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise BadRequest(f"embedding: samples must be at least 2, not {self.samples}")

    def check(self, runtime: Runtime) -> None:
        has_features(runtime, self.name)
        if strange := [client for client in self.clients if not 0 <= client < runtime.plan.clients]:
            raise BadRequest(
                f"embedding: there is no client {strange[0]}; they are numbered 0 to {runtime.plan.clients - 1}"
            )

    def observe(self, view: RoundView, found: Findings, ask: Ask) -> None:
        pairs = view.trained()
        pairs = [pair for pair in pairs if pair[0].client in self.clients] if self.clients else pairs[:1]
        labels = view.runtime.federation.test_y[: self.samples].tolist()
        for sent, trained in pairs:
            before, after = (one["features"] for one in ask([sent, trained]))
            flat = embedded(torch.cat([before, after]))
            there, here = flat[: len(before)].tolist(), flat[len(before) :].tolist()
            found.picture("points", {"before": there, "after": here, "labels": labels}, sent.client)
            found.number("feature_shift", shift(before, after), sent.client, "L2", "global")

    def work(self, runtime: Runtime, order: Order) -> dict[str, Any]:
        return {"features": features_of(runtime, order, self.samples)}


def embedded(features: torch.Tensor) -> torch.Tensor:
    """The two main directions (PCA), four digits."""
    from sklearn.decomposition import PCA

    flat = PCA(min(2, features.shape[1])).fit_transform(features.double().numpy())
    return torch.from_numpy(flat).mul(1e4).round().div(1e4)


def shift(before: torch.Tensor, after: torch.Tensor) -> float:
    """Mean distance a sample moved, over the mean distance of samples from their middle before."""
    spread = (before - before.mean(0)).norm(dim=1).mean()
    return ((after - before).norm(dim=1).mean() / spread.clamp(min=1e-12)).item()
