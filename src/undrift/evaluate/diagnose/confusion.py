"""Which class the judged model takes for which, on the whole test set: {"labels": […], "counts": [[…]]}, rows the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from undrift.evaluate import judge
from undrift.evaluate.diagnose.base import Ask, Diagnostic, Findings, Happened, piece
from undrift.evaluate.metrics import confusion
from undrift.orders import Order

if TYPE_CHECKING:
    from undrift.site import Site


@dataclass(frozen=True)
class Confusion(Diagnostic):
    name = "confusion"

    def look(self, seen: Happened, found: Findings, ask: Ask) -> None:
        federation = seen.site.federation
        orders = [piece(seen, number, seen.after.judged, stop - start)
                  for number, (start, stop) in enumerate(judge.stretches(len(federation.test_y)))]  # fmt: skip
        counts = torch.stack([one["counts"] for one in ask(orders)]).sum(0)
        found.picture("counts", {"labels": list(federation.labels), "counts": counts.tolist()})

    def work(self, site: Site, order: Order) -> dict[str, Any]:
        span = judge.stretches(len(site.federation.test_y))[order.span[1]]
        logits = judge.stretch(site, replace(order, data="global", span=span)).logits
        assert logits is not None
        return {"counts": confusion(logits, site.federation.test_y[slice(*span)], site.plan.classes)}
