"""What the hooks of the clients in a stack see, and what they make of losses and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F

from undrift.contract.context import Batch
from undrift.contract.parts import Objective
from undrift.round.lockstep.lane import Lane
from undrift.round.lockstep.linear import outputs
from undrift.round.second_gradient import Bound

if TYPE_CHECKING:
    from undrift.round.lockstep.stack import Stack


def batches(
    stack: Stack, step: int, lanes: Sequence[Lane], x: torch.Tensor, y: torch.Tensor, logits: torch.Tensor
) -> None:
    """Every client's batch as its hooks know it: its own samples only."""
    features = None
    if stack.features and stack.network.features is not None:
        features = stack.network.features.flatten(2).contiguous().unbind()
    parameters = [leaf.unbind() for leaf in stack.leaves] if stack.features else []
    for place, (lane, count, own) in enumerate(zip(lanes, stack.samples, logits.unbind())):
        index = torch.from_numpy(lane.positions[step, :count])
        batch = Batch(x[place, :count], y[place, :count], index, stack.row(stack.vectors.P, place), lane.epochs[step])
        batch.logits = own[:count]
        if features is not None:
            batch.features = features[place][:count]
            batch.head = head_of(stack, [leaf[place] for leaf in parameters])
        lane.batch = batch


def head_of(stack: Stack, parameters: Sequence[torch.Tensor]) -> Head:
    assert stack.network.head_places is not None
    weight, bias = stack.network.head_places
    return Head(parameters[weight], None if bias is None else parameters[bias])


class Calls:
    """One hook of every part, for all clients of a stack: called once where the part stacks their scratches, else client by
    client. `name`: of a client's own hooks, bound. `known`: the stacked scratches so far, by part."""

    def __init__(self, lanes: Sequence[Lane], name: str, known: dict[str, Any]) -> None:
        self.of: Callable[[Lane], Sequence[Bound]] = attrgetter(name)
        self.all: list[tuple[Callable[..., Any], Any]] = []
        for number, (hook, *_) in enumerate(self.of(lanes[0])):
            part: Objective = hook.__self__
            if part.key not in known:
                known[part.key] = part.stack_scratches([self.of(lane)[number][2] for lane in lanes])
            self.all.append((hook, known[part.key]))
        self.at_once = all(stacked is not None for _, stacked in self.all)

    def __bool__(self) -> bool:
        return bool(self.all)

    def shrink(self, count: int) -> None:
        """From now on for the first `count` clients."""
        self.now = [(hook, first_of(stacked, count)) for hook, stacked in self.all]

    def logits(self, z: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The logits of all clients that enter the loss."""
        for hook, stacked in self.now:
            z = hook(z, batch, None, stacked)
        return z

    def gradients(self, P: torch.Tensor, G: torch.Tensor, lanes: Sequence[Lane], usable: Sequence[bool] | None) -> None:
        """Change the rows of G, of clients that take the step. (What becomes of the others does not count.)"""
        for number, (hook, stacked) in enumerate(self.now):
            if stacked is not None:
                hook(P, G, None, None, stacked)
                continue
            for place, (lane, good) in enumerate(zip(lanes, usable or [True] * len(lanes))):
                if good:
                    own, job, scratch = self.of(lane)[number]
                    own(P[place], G[place], lane.batch, job, scratch)


def first_of(stacked: Any, count: int) -> Any:
    """The first `count` clients of a tree whose tensors have the clients as first axis."""
    if isinstance(stacked, torch.Tensor):
        return stacked[:count]
    if isinstance(stacked, dict):
        return {key: first_of(value, count) for key, value in stacked.items()}
    return type(stacked)(first_of(value, count) for value in stacked) if isinstance(stacked, (list, tuple)) else stacked


def losses(
    stack: Stack,
    lanes: Sequence[Lane],
    together: Callable[[], Batch],
    per_sample: torch.Tensor,
    raw: Sequence[float],
) -> tuple[torch.Tensor, list[float]]:
    """(what is minimised: the sum over all clients, every client's own loss), after logits, sample weights and terms.
    `together`: makes the batch of all clients."""
    if stack.logits and stack.logits.at_once:
        all_of_them = together()
        z = stack.logits.logits(all_of_them.logits, all_of_them)
        per_sample = F.cross_entropy(z.transpose(1, 2), all_of_them.y, reduction="none")
        raw = (per_sample.detach() * stack.share).sum(1).tolist()
    if not stack.sees_batches:
        return (per_sample * stack.share).sum(), list(raw)
    batches, values = [lane.batch for lane in lanes if lane.batch is not None], list(raw)
    changed = bool(stack.logits) and not stack.logits.at_once
    rows = [row[:count] for row, count in zip(stack.share, stack.samples)]
    if changed:
        z = torch.cat([changed_logits(lane, batch) for lane, batch in zip(lanes, batches)])
        per_sample = stack.runtime.loss(z, torch.cat([batch.y for batch in batches]))
        split = torch.split(per_sample, stack.samples)
        values = [(loss.detach() * row).sum().item() for loss, row in zip(split, rows)]
    else:
        split = tuple(own[:count] for own, count in zip(per_sample.unbind(), stack.samples))
    for batch, loss in zip(batches, split):
        batch.loss = loss
    if lanes[0].sample_weights:
        rows, values = weighted(stack, lanes)
    weights = torch.cat(rows) if changed else padded_rows(rows, stack.share)
    total = (per_sample * weights).sum()
    for place, (lane, batch) in enumerate(zip(lanes, batches)):
        for hook, job, scratch in lane.loss_terms:
            term = hook(batch, job, scratch)
            values[place] += term.item()
            total = total + term
    return total, values


def changed_logits(lane: Lane, batch: Batch) -> torch.Tensor:
    z = batch.logits
    for hook, job, scratch in lane.logits_hooks:
        z = hook(z, batch, job, scratch)
    return z


def weighted(stack: Stack, lanes: Sequence[Lane]) -> tuple[list[torch.Tensor], list[float]]:
    """Every client's weights, divided by its number of samples, and its weighted loss. Weights are constants here."""
    rows, values = list[torch.Tensor](), list[float]()
    with torch.no_grad():
        for lane, share in zip(lanes, stack.share):
            batch = lane.batch
            assert batch is not None
            (hook, job, scratch), *others = lane.sample_weights
            weights = hook(batch, job, scratch)
            for hook, job, scratch in others:
                weights = weights * hook(batch, job, scratch)
            lane.mean_weight = batch.mean_weight = weights.mean().item()
            values.append((weights * batch.loss).mean().item())
            rows.append(weights * share[: len(weights)])
    return rows, values


def stack_weights(stack: Stack, lanes: Sequence[Lane], logits: torch.Tensor) -> torch.Tensor | None:
    """Weights of all clients' samples at once, where one part weighs them and can do that."""
    if len(lanes[0].sample_weights) != 1:
        return None
    part = lanes[0].sample_weights[0][0].__self__  # type: ignore[attr-defined]
    weights: torch.Tensor | None = part.stack_weights(
        logits, stack.samples, [lane.sample_weights[0][2] for lane in lanes]
    )
    return weights


def of_all(stack: Stack, x: torch.Tensor, y: torch.Tensor, logits: torch.Tensor) -> Batch:
    """The batch of all clients, as hooks that are called once know it."""
    nobody = torch.empty(0)
    batch = Batch(x, y, nobody, nobody, -1)
    batch.logits = logits
    if stack.features and stack.network.features is not None:
        assert stack.network.head_places is not None
        batch.features = stack.network.features.flatten(2)
        weight, bias = (None if place is None else stack.leaves[place] for place in stack.network.head_places)
        assert weight is not None
        batch.head = lambda features: outputs(
            features.transpose(1, 2), weight, None if bias is None else bias.unsqueeze(2)
        ).transpose(1, 2)
    return batch


class Head:
    """A client's head: features -> logits."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, features: torch.Tensor) -> torch.Tensor:
        return F.linear(features, self.weight, self.bias)


def padded_rows(rows: Sequence[torch.Tensor], shares: torch.Tensor) -> torch.Tensor:
    """Rows of unequal length in the shape of `shares`, 0 where they end."""
    out = torch.zeros_like(shares)
    for place, row in enumerate(rows):
        out[place, : len(row)] = row
    return out
