"""Does the bound of bound weighting hold? Per client, with the model θ^t the round began with and the Jensen–Shannon loss L
(base 2, 0…1) on the client's training data:

    loss_mean_squared, loss_variance      E[L]² and V[L]
    label_distance                        H, the Hellinger distance between the client's and the test set's label shares
    bound_lower, bound_upper              l and u of E[L²] at radius H
    bound_covers                          1 where the test set's E[L²] lies in [l, u], else 0; their mean under no client

The radius covers the labels alone. If the images differ too (domains), or the model was trained often on the data, the test
set may lie outside. That is what the number shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from undrift.contract.client_data import eval_logits
from undrift.evaluate.client import spans
from undrift.evaluate.diagnose.base import Ask, Diagnostic, Findings, RoundView, loaded, piece
from undrift.methods.weighting.bound import bounds, jsd
from undrift.round.orders import Order

if TYPE_CHECKING:
    from undrift.round.runtime import Runtime

TEST = "test"
SLACK = 1e-9  # of rounding, at radius 0


@dataclass(frozen=True)
class Bound(Diagnostic):
    name = "bound"
    needs = ("labels",)

    def observe(self, view: RoundView, found: Findings, ask: Ask) -> None:
        federation = view.runtime.federation
        theirs = [
            replace(
                order, vector=view.before.vector, integers=view.before.integers, server_messages={}, state_round=None
            )
            for order in view.orders
        ]
        pieces = spans(len(federation.test_y))
        tests = [
            replace(piece(view, number, view.before.vector, stop - start), data=TEST, integers=view.before.integers)
            for number, (start, stop) in enumerate(pieces)
        ]
        answers = ask([*theirs, *tests])
        test = sum(one["square"] * one["n"] for one in answers[len(theirs) :]) / len(federation.test_y)
        shares = torch.bincount(federation.test_y, minlength=federation.classes)
        covered = []
        for order, one in zip(theirs, answers):
            H = hellinger(torch.from_numpy(federation.counts(order.client)), shares)
            u, l = bounds(one["square"], one["square_variance"], 1.0, torch.tensor([H], dtype=torch.float64))
            covered.append(l.item() - SLACK <= test <= u.item() + SLACK)
            for metric, value in (
                ("loss_mean_squared", one["mean"] ** 2),
                ("loss_variance", one["variance"]),
                ("label_distance", H),
                ("bound_lower", l.item()),
                ("bound_upper", u.item()),
                ("bound_covers", covered[-1]),
            ):
                found.number(metric, value, order.client)
        if covered:
            found.number("bound_covers", sum(covered) / len(covered))

    def work(self, runtime: Runtime, order: Order) -> dict[str, Any]:
        if order.data == TEST:
            start, stop = spans(len(runtime.federation.test_y))[order.span[1]]
            x, y = runtime.federation.test_x[start:stop], runtime.federation.test_y[start:stop]
        else:
            x, y = runtime.train(order.client)
        L = jsd(
            eval_logits(loaded(runtime, order), x.to(runtime.model.device), runtime.network_input)[0].double(),
            y.to(runtime.model.device),
        )
        X = L.square()
        return {
            "n": len(y),
            "mean": L.mean().item(),
            "variance": variance(L),
            "square": X.mean().item(),
            "square_variance": variance(X),
        }


def variance(values: torch.Tensor) -> float:
    return values.var().item() if len(values) > 1 else 0.0


def hellinger(a: torch.Tensor | Sequence[float], b: torch.Tensor | Sequence[float]) -> float:
    """√(1 − Σ √(p q)) of two vectors of counts: 0 where their shares are equal, 1 where they have nothing in common."""
    p, q = (torch.as_tensor(v, dtype=torch.float64) for v in (a, b))
    affinity = (p / p.sum() * q / q.sum()).sqrt().sum().item()
    return max(0.0, 1 - affinity) ** 0.5
