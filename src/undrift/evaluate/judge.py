"""Who is judged on what: the global model on stretches of a test set, a client's mixture on its own and the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from undrift.evaluate.metrics import metrics
from undrift.job import CHUNK, eval_logits
from undrift.orders import Order, Reply
from undrift.vector import Integers

if TYPE_CHECKING:
    from undrift.site import Site


def stretch(site: Site, order: Order) -> Reply:
    """The logits of the order's vector on samples [start, stop) of a test set."""
    x, _ = site.federation.judged_on(order.data)
    spare = site.spare(0)
    spare.load(order.vector, order.integers)
    logits, _ = eval_logits(spare, x[slice(*order.span)].to(spare.device), site.network)
    return Reply(order.round, order.client, logits=logits.cpu())


def stretches(size: int) -> list[tuple[int, int]]:
    """A test set in pieces of constant size, so that the bits do not depend on who computes them."""
    return [(at, min(at + CHUNK, size)) for at in range(0, size, CHUNK)]


def client(
    site: Site, order: Order, mixture: list[tuple[Any, torch.Tensor]], integers: Integers
) -> dict[str, dict[str, float]]:
    """What a client holds, judged on its own test slice ("own") and on the whole test set ("global")."""
    federation, classes = site.federation, site.plan.classes
    x, y = federation.judged_on("global")
    logits = mixed_logits(site, mixture, integers, x) if "global" in order.judge else None
    if federation.elsewhere is not None:
        own_x, labels = federation.elsewhere.test(order.client)
        own = mixed_logits(site, mixture, integers, own_x)
    else:
        rows, labels = federation.slice(order.client)
        own = mixed_logits(site, mixture, integers, x[rows]) if logits is None else logits[rows]
    verdicts = {}
    if logits is not None:
        verdicts["global"] = metrics(logits, y, site.loss, classes)
    if "own" in order.judge and len(labels):
        verdicts["own"] = metrics(own, labels, site.loss, classes)
    return verdicts


def mixed_logits(
    site: Site, mixture: list[tuple[Any, torch.Tensor]], integers: Integers, x: torch.Tensor
) -> torch.Tensor:
    """A mixture of outputs: Σ weight · logits."""
    spare, total = site.spare(0), None
    for weight, vector in mixture:
        spare.load(vector, integers)
        logits = eval_logits(spare, x.to(spare.device), site.network)[0].cpu()
        logits = logits if len(mixture) == 1 else logits * weight
        total = logits if total is None else total + logits
    assert total is not None
    return total
