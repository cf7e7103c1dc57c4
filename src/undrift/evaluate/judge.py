"""Who is judged on what: the global model on stretches of a test set, a client's mixture on its own and the whole, a
newcomer after it has fine-tuned what the server has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from undrift.job import CHUNK, Desk, Job, eval_logits
from undrift.orders import Order, Reply
from undrift.vector import Integers

if TYPE_CHECKING:
    from undrift.site import Site

Verdicts = dict[str, dict[str, float]]  # data -> metric -> value


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


def client(site: Site, order: Order, mixture: list[tuple[Any, torch.Tensor]], integers: Integers) -> Verdicts:
    """What a client holds, judged on its own test slice ("own") and on the whole test set ("global")."""
    federation = site.federation
    x = federation.judged_on("global")[0]
    logits = mixed_logits(site, mixture, integers, x) if "global" in order.judge else None
    verdicts = {} if logits is None else whole(site, logits)
    if "own" not in order.judge:
        return verdicts
    if logits is not None and federation.elsewhere is None:
        return verdicts | own(site, order.client, logits)
    own_x, labels = federation.own_test(order.client)
    return verdicts | (
        {"own": site.measure(mixed_logits(site, mixture, integers, own_x), labels)} if len(labels) else {}
    )


def whole(site: Site, logits: torch.Tensor, ranks: bool = True) -> Verdicts:
    """Logits on the whole test set: judged there, and on every domain by itself."""
    y = site.federation.judged_on("global")[1]
    domains = {f"domain:{name}": torch.from_numpy(rows) for name, rows in site.federation.domains.items()}
    return {"global": site.measure(logits, y, ranks)} | {
        data: site.measure(logits[rows], y[rows], ranks) for data, rows in domains.items() if len(rows)
    }


def own(site: Site, client: int, logits: torch.Tensor) -> Verdicts:
    """Logits on the whole test set: judged on a client's slice of it. A client without a slice has no such verdict."""
    rows, labels = site.federation.slice(client)
    return {"own": site.measure(logits[rows], labels)} if len(rows) else {}


def newcomer(site: Site, order: Order) -> Reply:
    """A client that never trains with the others takes the global model and fine-tunes it on its own data: the run's
    epochs, batches, optimizer and rate, plain loss, no part of the method."""
    job = Job(Desk(site, order.round, order.client, order.integers), "newcomer", order.vector)
    twin = job.twin(order.vector)
    for x, y in job.batches("tuning", site.plan.epochs):
        if len(y) > 1 or not site.plan.layout.lone:  # BatchNorm cannot learn from one value per channel
            twin.step(twin.loss(twin(x), y))
    rows, labels = site.federation.slice(order.client)
    x = site.federation.judged_on("global")[0][rows]
    reply = Reply(order.round, order.client)
    if len(rows):
        logits = mixed_logits(site, [(1.0, twin.vector)], twin.flat.integers(), x)
        reply.verdicts = {"unseen": site.measure(logits, labels)}
    return reply


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
