"""The tensors of a network for a stack: the parameters of all clients, then BatchNorm's statistics."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from undrift.core.vector import Flat, Layout

Leaves = Sequence[torch.Tensor]  # each [clients, …]


class Unstackable(Exception):
    """Why a network cannot be stacked, as a sentence about one of its modules."""


def places_of(flat: Flat) -> dict[int, int]:
    """Where a parameter or a buffer is among the leaves, by its id."""
    buffers = dict(flat.module.named_buffers())
    held = [buffers[entry.name] for entry in flat.layout.entries if entry.kind == "buffer"]
    return {id(tensor): place for place, tensor in enumerate([*flat.parameters, *held])}


def leaves_of(layout: Layout, stack: torch.Tensor, statistics: torch.Tensor) -> list[torch.Tensor]:
    """The parameters of stacks [clients, width] and what is behind them in a vector [clients, n - nP], as views."""
    found = [
        stack[:, entry.place].view(len(stack), *entry.shape).detach().requires_grad_()
        for entry in layout.entries
        if entry.kind == "parameter"
    ]
    return found + buffers_of(layout, statistics)


def buffers_of(layout: Layout, statistics: torch.Tensor) -> list[torch.Tensor]:
    return [
        statistics[:, entry.start - layout.nP : entry.stop - layout.nP].view(len(statistics), *entry.shape)
        for entry in layout.entries
        if entry.kind == "buffer"
    ]
