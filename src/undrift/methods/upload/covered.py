"""Which vectors of a reply one bound covers: the update, and what linear parts send along the parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch

from undrift.contract.context import Message
from undrift.contract.declare import Along
from undrift.contract.parts import Plan


def covered_vectors(plan: Plan, messages: Mapping[str, Message]) -> list[torch.Tensor]:
    """The vectors that linear parts send: they are clipped and noised with the update as one vector."""
    return [messages[key][name] for key, name in covered_names(plan) if name in messages.get(key, {})]


def covered_names(plan: Plan) -> list[tuple[str, str]]:
    return [
        (part.key, name)
        for part in plan.method.parts
        if part.linear
        for name, kind in part.uplink.items()
        if isinstance(kind, Along)
    ]


def scaled(plan: Plan, messages: Mapping[str, Message], factor: float) -> dict[str, Message]:
    """The messages with the covered vectors times a factor."""
    out = {key: dict(message) for key, message in messages.items()}
    for key, name in covered_names(plan):
        if name in out.get(key, {}):
            out[key][name] = out[key][name] * factor
    return out


def joint_norm(update: torch.Tensor, vectors: Iterable[torch.Tensor]) -> float:
    return math.sqrt(sum(float(vector.double().square().sum()) for vector in (update, *vectors)))


def shrink(norm: float, clip: float) -> float:
    """The factor that brings a norm within the bound, with room for float32's rounding."""
    return 1.0 if norm <= clip else clip / norm * (1 - 1e-6)
