"""Can the judged model tell its own test data from another data set? `auroc:SCORE` and `fpr95:SCORE` for the seven scores
(larger is more in-distribution), data `ood`. 0.5 means that it cannot; fpr95 is the share of the other set that is let
through where 95 % of the own test data are. The other set comes from `--ood NAME`, standardised as the training data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from undrift import scores
from undrift.errors import BadRequest
from undrift.evaluate.diagnose.base import Ask, Diagnostic, Findings, Happened, loaded, piece
from undrift.evaluate.judge import stretches
from undrift.evaluate.metrics import fpr_at, two_set_auroc
from undrift.job import eval_logits
from undrift.orders import Order

if TYPE_CHECKING:
    from undrift.site import Site

OWN, OTHER = "own", "other"


@dataclass(frozen=True)
class Ood(Diagnostic):
    name = "ood"

    def check(self, site: Site) -> None:
        if site.federation.ood is None:
            raise BadRequest("the diagnostic ood needs another data set to compare with; name one with --ood")

    def look(self, seen: Happened, found: Findings, ask: Ask) -> None:
        own, other = (torch.cat([one["scores"] for one in ask(self.orders(seen, data))]) for data in (OWN, OTHER))
        for name, a, b in zip(self.names(seen.site), own.T, other.T):
            found.number(f"auroc:{name}", two_set_auroc(a, b), data="ood")
            found.number(f"fpr95:{name}", fpr_at(a, b), data="ood")

    def names(self, site: Site) -> list[str]:
        """Scores that need features are left out where the model has none."""
        return [name for name in scores.SCORES if site.plan.layout.head is not None or not scores.needs(name)]

    def orders(self, seen: Happened, data: str) -> list[Order]:
        spans = stretches(len(rows(seen.site, data)))
        return [replace(piece(seen, number, seen.after.judged, stop - start), data=data)
                for number, (start, stop) in enumerate(spans)]  # fmt: skip

    def work(self, site: Site, order: Order) -> dict[str, Any]:
        x = rows(site, order.data)
        x = x[slice(*stretches(len(x))[order.span[1]])]
        flat = loaded(site, order)
        if deep := site.plan.layout.head is not None:
            flat.watch()
        logits, features = eval_logits(flat, x.to(flat.device), site.network, deep)
        with torch.no_grad():
            columns = [scores.SCORES[name](logits, features, flat.head).cpu() for name in self.names(site)]
        return {"scores": torch.stack(columns, 1)}


def rows(site: Site, data: str) -> torch.Tensor:
    if data == OWN:
        return site.federation.test_x
    assert site.federation.ood is not None
    return site.federation.ood[1]
