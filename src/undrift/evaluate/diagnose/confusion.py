"""Confusion matrix of the evaluated model on the whole test set: {"labels": […], "counts": [[…]]}, one row per true class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from undrift.evaluate.client import evaluate_span, spans
from undrift.evaluate.diagnose.base import Ask, Diagnostic, Findings, RoundView, piece
from undrift.round.orders import Order
from undrift.tasks.classification import confusion

if TYPE_CHECKING:
    from undrift.round.runtime import Runtime


@dataclass(frozen=True)
class Confusion(Diagnostic):
    name = "confusion"
    needs = ("labels",)

    def observe(self, view: RoundView, found: Findings, ask: Ask) -> None:
        federation = view.runtime.federation
        orders = [
            piece(view, number, view.after.evaluated, stop - start)
            for number, (start, stop) in enumerate(spans(len(federation.test_y)))
        ]
        counts = torch.stack([one["counts"] for one in ask(orders)]).sum(0)
        found.picture("counts", {"labels": list(federation.labels), "counts": counts.tolist()})

    def work(self, runtime: Runtime, order: Order) -> dict[str, Any]:
        span = spans(len(runtime.federation.test_y))[order.span[1]]
        logits = evaluate_span(runtime, replace(order, data="global", span=span)).logits
        assert logits is not None
        return {"counts": confusion(logits, runtime.federation.test_y[slice(*span)], runtime.plan.classes)}
