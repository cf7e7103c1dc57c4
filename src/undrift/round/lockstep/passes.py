"""Passes of many models at once: the logits of every client's model on samples of its own, with the clients as first axis.

How many rows go through the network together depends on a pass's own number of samples only. So its bits do not depend on
the others in the stack, and a pass alone is a stack of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from undrift.contract.client_data import Outputs
from undrift.round.lockstep.decide import Lockstep
from undrift.round.lockstep.leaves import leaves_of
from undrift.round.lockstep.linear import rounded
from undrift.round.runtime import Runtime

STEP, MOST = (
    64,
    1024,
)  # rows that go through the network together: multiples of STEP, at most MOST; constants, they change bits
Wanted = tuple[torch.Tensor, Any]  # a model's vector, and the samples


def passes(runtime: Runtime, asked: Sequence[Wanted], features: bool = False) -> list[Outputs]:
    """Logits (and features) of every pass, in eval mode."""
    lockstep = runtime.lockstep
    assert lockstep is not None
    alike: dict[int, list[int]] = {}
    found: list[Outputs] = [(torch.zeros(0, 1), None)] * len(asked)
    for number, (_, x) in enumerate(asked):
        if len(x):
            alike.setdefault(-(-len(x) // STEP), []).append(number)
    with evaluating(runtime.model.module), torch.no_grad():
        for steps, numbers in alike.items():
            rows = min(steps * STEP, MOST)
            together = max(1, lockstep.bytes // (8 * (rounded(runtime.plan.layout.nP) + 3 * rows * lockstep.widest)))
            for at in range(0, len(numbers), together):
                some = numbers[at : at + together]
                for number, one in zip(some, stacked(runtime, lockstep, [asked[n] for n in some], rows, features)):
                    found[number] = one
    return found


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """In eval mode. Hooks may ask for a pass between two steps, so the mode is put back."""
    was = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was)


def stacked(runtime: Runtime, lockstep: Lockstep, asked: Sequence[Wanted], rows: int, features: bool) -> list[Outputs]:
    """Passes of about as many samples each, so many rows at a time."""
    plan, device, count = runtime.plan, runtime.model.device, len(asked)
    P = torch.zeros(count, rounded(plan.layout.nP), device=device)
    whole = torch.stack([vector.to(device) for vector, _ in asked])
    P[:, : plan.layout.nP] = whole[:, : plan.layout.nP]
    leaves = leaves_of(plan.layout, P, whole[:, plan.layout.nP :])
    first = asked[0][1]
    shared = all(x.data_ptr() == first.data_ptr() and len(x) == len(first) for _, x in asked)
    most = max(len(x) for _, x in asked)
    pieces: list[tuple[torch.Tensor, torch.Tensor | None]] = []
    for at in range(0, most, rows):
        block = torch.stack([padded(x[at : at + rows], rows) for _, x in (asked[:1] if shared else asked)]).to(device)
        x = runtime.network_input(block.flatten(0, 1))
        x = x.view(len(block), rows, *x.shape[1:])
        logits = lockstep.network(leaves, x.expand(count, *x.shape[1:]))
        inner = lockstep.network.features
        pieces.append((logits, inner.flatten(2) if features and inner is not None else None))
    return [
        (joined([logits[place] for logits, _ in pieces], len(x)), joined([f[place] for _, f in pieces if f is not None], len(x)))
        for place, (_, x) in enumerate(asked)
    ]  # fmt: skip


def padded(x: torch.Tensor, rows: int) -> torch.Tensor:
    """The samples, then zeros up to so many rows."""
    out = x.new_zeros(rows, *x.shape[1:])
    out[: len(x)] = x
    return out


def joined(pieces: Sequence[torch.Tensor], count: int) -> Any:
    """The first rows of the pieces; None of no piece."""
    return torch.cat(list(pieces))[:count].contiguous() if pieces else None
