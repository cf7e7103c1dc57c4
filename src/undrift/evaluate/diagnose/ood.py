"""Can the evaluated model distinguish its own test data from another data set? `auroc:SCORE` and `fpr95:SCORE` for the seven scores
(larger is more in-distribution), data `ood`. 0.5 means that it cannot; fpr95 is the share of the other set that passes
the threshold that 95 % of the own test data pass. The other set comes from `--ood NAME`, standardised as the training data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from undrift.contract.client_data import eval_logits
from undrift.core.errors import BadRequest
from undrift.evaluate.client import spans
from undrift.evaluate.diagnose.base import Ask, Diagnostic, Findings, RoundView, loaded, piece
from undrift.evaluate.metrics import fpr_at, two_set_auroc
from undrift.methods import scores
from undrift.round.orders import Order

if TYPE_CHECKING:
    from undrift.round.runtime import Runtime

OWN, OTHER = "own", "other"


@dataclass(frozen=True)
class Ood(Diagnostic):
    name = "ood"
    needs = ("labels",)

    def check(self, runtime: Runtime) -> None:
        if runtime.ood is None:
            raise BadRequest("the diagnostic ood needs another data set to compare with; name one with --ood")

    def observe(self, view: RoundView, found: Findings, ask: Ask) -> None:
        own, other = (torch.cat([one["scores"] for one in ask(self.orders(view, data))]) for data in (OWN, OTHER))
        for name, a, b in zip(self.names(view.runtime), own.T, other.T):
            found.number(f"auroc:{name}", two_set_auroc(a, b), data="ood")
            found.number(f"fpr95:{name}", fpr_at(a, b), data="ood")

    def names(self, runtime: Runtime) -> list[str]:
        """Scores that need features are left out where the model has none."""
        return [
            name
            for name in scores.SCORES
            if runtime.plan.layout.head is not None or "features" not in scores.needs(name)
        ]

    def orders(self, view: RoundView, data: str) -> list[Order]:
        return [
            replace(piece(view, number, view.after.evaluated, stop - start), data=data)
            for number, (start, stop) in enumerate(spans(len(rows(view.runtime, data))))
        ]

    def work(self, runtime: Runtime, order: Order) -> dict[str, Any]:
        x = rows(runtime, order.data)
        x = x[slice(*spans(len(x))[order.span[1]])]
        flat = loaded(runtime, order)
        if deep := runtime.plan.layout.head is not None:
            flat.watch()
        logits, features = eval_logits(flat, x.to(flat.device), runtime.network_input, deep)
        with torch.no_grad():
            columns = [scores.SCORES[name](logits, features, flat.head).cpu() for name in self.names(runtime)]
        return {"scores": torch.stack(columns, 1)}


def rows(runtime: Runtime, data: str) -> torch.Tensor:
    if data == OWN:
        return runtime.federation.test_x
    assert runtime.ood is not None
    return runtime.ood[1]
