"""What a worker does for an evaluation: the global model on a span of a test set, a client's models on its own data and on
the whole test set, and a newcomer after it has fine-tuned what the server has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from undrift.contract.client_data import CHUNK, ClientData, eval_logits
from undrift.contract.job import Job
from undrift.core import samples
from undrift.core.vector import Integers
from undrift.round.orders import Order, Reply

if TYPE_CHECKING:
    from undrift.round.runtime import Runtime

Metrics = dict[str, dict[str, float]]  # data -> metric -> value
Mixture = Sequence[tuple[Any, torch.Tensor]]  # [(weight, vector)]: the outputs are mixed


def evaluate_span(runtime: Runtime, order: Order) -> Reply:
    """The logits of the order's vector on samples [start, stop) of a test set."""
    x, _ = runtime.federation.evaluation_set(order.data, order.span)
    spare = runtime.spare(0)
    spare.load(order.vector, order.integers)
    logits, _ = eval_logits(spare, x.to(spare.device), runtime.network_input)
    return Reply(order.round, order.client, logits=logits.cpu())


def spans(size: int) -> list[tuple[int, int]]:
    """A test set in pieces of constant size, so that the bits do not depend on who computes them."""
    return [(at, min(at + CHUNK, size)) for at in range(0, size, CHUNK)]


def evaluated_on(runtime: Runtime, order: Order) -> Any:
    """The samples that a client's models are evaluated on first."""
    federation = runtime.federation
    if "global" in order.evaluate_on:
        return federation.evaluation_set("global")[0]
    own = federation.own_test(order.client)[0]
    if "validation" not in order.evaluate_on:
        return own
    return samples.joined([own, federation.own_validation(order.client)[0]])


def client_metrics(
    runtime: Runtime, order: Order, mixture: Mixture, integers: Integers, ready: torch.Tensor | None = None
) -> Metrics:
    """A client's models, evaluated where the order says: on its own test slice, and on the whole test set or on its own
    validation part. `ready`: their mixed outputs on `evaluated_on`, where they are known."""
    federation = runtime.federation
    if "validation" in order.evaluate_on:
        return own_metrics(runtime, order, mixture, integers, ready)
    logits = None
    if "global" in order.evaluate_on:
        logits = mixed_logits(runtime, mixture, integers, evaluated_on(runtime, order)) if ready is None else ready
    metrics = {} if logits is None else global_metrics(runtime, logits)
    if "own" not in order.evaluate_on:
        return metrics
    if logits is not None and federation.lazy_clients is None:
        return metrics | slice_metrics(runtime, order.client, logits)
    own_x, labels = federation.own_test(order.client)
    if not len(labels):
        return metrics
    if ready is None or logits is not None:
        ready = mixed_logits(runtime, mixture, integers, own_x)
    return metrics | {"own": runtime.measure(ready, labels)}


def own_metrics(
    runtime: Runtime, order: Order, mixture: Mixture, integers: Integers, ready: torch.Tensor | None
) -> Metrics:
    """A client's models on its own test slice and on its own validation part, which pass through the network together."""
    federation = runtime.federation
    tested, held = federation.own_test(order.client)[1], federation.own_validation(order.client)[1]
    if not len(tested) + len(held):
        return {}
    if ready is None:
        ready = mixed_logits(runtime, mixture, integers, evaluated_on(runtime, order))
    parts = {"own": (ready[: len(tested)], tested), "validation": (ready[len(tested) :], held)}
    return {data: runtime.measure(logits, y) for data, (logits, y) in parts.items() if len(y)}


def global_metrics(runtime: Runtime, logits: torch.Tensor, quick: bool = False) -> Metrics:
    """Metrics of logits on the whole test set, and on every domain of it by itself."""
    y = runtime.federation.evaluation_set("global")[1]
    domains = {f"domain:{name}": torch.from_numpy(rows) for name, rows in runtime.federation.domains.items()}
    return {"global": runtime.measure(logits, y, quick)} | {
        data: runtime.measure(logits[rows], y[rows], quick) for data, rows in domains.items() if len(rows)
    }


def slice_metrics(runtime: Runtime, client: int, logits: torch.Tensor) -> Metrics:
    """Of logits on the whole test set: the metrics on a client's slice of it; nothing for a client without a slice."""
    rows, labels = runtime.federation.slice(client)
    return {"own": runtime.measure(logits[rows], labels)} if len(rows) else {}


def validation_metrics(runtime: Runtime, client: int, logits: torch.Tensor) -> Metrics:
    """Of logits on the whole validation set: the metrics on a client's own part of it; nothing for a client without one."""
    places, labels = runtime.federation.validation_slice(client)
    return {"validation": runtime.measure(logits[places], labels)} if len(places) else {}


def fine_tuned(runtime: Runtime, order: Order) -> Reply:
    """A client that never trains with the others fine-tunes the global model on its own data: the run's epochs, batches,
    optimizer and rate, plain loss, no part of the method."""
    job = Job(ClientData(runtime, order.round, order.client, order.integers), "newcomer", order.vector)
    twin = job.twin(order.vector)
    for x, y in job.batches("tuning", runtime.plan.epochs):
        if len(y) > 1 or not runtime.plan.layout.batchnorm_needs_two:
            twin.step(twin.loss(twin(x), y))
    rows, labels = runtime.federation.slice(order.client)
    x = runtime.federation.evaluation_set("global")[0][rows]
    reply = Reply(order.round, order.client)
    if len(rows):
        logits = mixed_logits(runtime, [(1.0, twin.vector)], twin.flat.integers(), x)
        reply.metrics = {"unseen": runtime.measure(logits, labels)}
    return reply


def mixed_logits(runtime: Runtime, mixture: Mixture, integers: Integers, x: Any) -> torch.Tensor:
    """A mixture of outputs: Σ weight · logits. The client has trained, so its network is free for the passes."""
    together = runtime.stacked_passes([(vector, x) for _, vector in mixture])
    if together is not None:
        return mixed(mixture, [logits for logits, _ in together])
    flat, found = runtime.model, list[torch.Tensor]()
    for _, vector in mixture:
        flat.load(vector, integers)
        found.append(eval_logits(flat, x.to(flat.device), runtime.network_input)[0])
    return mixed(mixture, found)


def mixed(mixture: Mixture, outputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Σ weight · output; one output is taken as it is."""
    if len(outputs) == 1:
        return outputs[0].cpu()
    first, *others = (output.cpu() * weight for output, (weight, _) in zip(outputs, mixture))
    return sum(others, first)
