"""Orders and replies as envelopes. Only declared values travel.

The shared entries of a vector (never the private ones), the parts' declared messages, and with a reply the sample
count, steps, losses, metrics and seconds. Notes, labels and tracebacks stay at the site.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from undrift.contract.context import Plan
from undrift.contract.declare import Along, Declaration, Models, Number, Numbers
from undrift.core.vector import Integers
from undrift.deploy.envelope import Envelope
from undrift.round.orders import Order, Reply


class ArrayPacker:
    """Collects the arrays of an envelope. Equal arrays are packed once."""

    def __init__(self) -> None:
        self.arrays: dict[str, torch.Tensor] = {}

    def add(self, name: str, tensor: torch.Tensor) -> str:
        tensor = tensor.detach().cpu().contiguous()
        for other, known in self.arrays.items():
            if known.dtype == tensor.dtype and known.shape == tensor.shape and torch.equal(known, tensor):
                return other
        self.arrays[name] = tensor
        return name

    def message(self, name: str, declared: Declaration, message: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
        entry: dict[str, Any] = {}
        for key, value in message.items():
            kind, array_name = declared[key], f"{name}.{key}"
            if isinstance(kind, Number):
                entry[key] = float(value)
            elif isinstance(kind, Numbers):
                entry[key] = {str(client): float(number) for client, number in value.items()}
            elif isinstance(kind, Models):
                entry[key] = {str(c): self.add(f"{array_name}.{c}", shared(model, plan)) for c, model in value.items()}
            else:
                entry[key] = self.add(array_name, shared(value, plan) if isinstance(kind, Along) else value)
        return entry

    def integers(self, name: str, integers: Integers, plan: Plan) -> dict[str, str]:
        return {
            key: self.add(f"{name}.integers.{key}", value.long())
            for key, value in integers.items()
            if key not in plan.private_integers
        }


def pack_orders(orders: Sequence[Order], plan: Plan, **extra: Any) -> Envelope:
    """Orders for one site. An evaluation sent with a training order usually shares its vector."""
    packer = ArrayPacker()
    entries = [
        {
            "work": order.work,
            "round": order.round,
            "state_round": order.state_round,
            "keep_round": order.keep_round,
            "evaluate": bool(order.evaluate_on),
            "final": order.work == "personalize" and order.round >= plan.rounds,
            "vector": packer.add(f"{order.work}.vector", shared(order.vector, plan)),
            "integers": packer.integers(order.work, order.integers, plan),
            "messages": {
                part.key: packer.message(
                    f"{order.work}.{part.key}", part.downlink, order.server_messages[part.key], plan
                )
                for part in plan.method.parts
                if part.key in order.server_messages
            },
        }
        for order in orders
    ]
    return Envelope({"kind": "orders", "orders": entries, **extra}, packer.arrays)


def pack_replies(orders: Sequence[Order], replies: Sequence[Reply], plan: Plan, site: str) -> Envelope:
    packer = ArrayPacker()
    entries = [pack_reply(packer, order, reply, plan) for order, reply in zip(orders, replies, strict=True)]
    return Envelope({"kind": "replies", "site": site, "replies": entries}, packer.arrays)


def pack_reply(packer: ArrayPacker, order: Order, reply: Reply, plan: Plan) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "work": order.work,
        "round": reply.round,
        "seconds": reply.seconds,
        "metrics": {data: finite_only(metrics) for data, metrics in reply.metrics.items()},
    }
    if reply.failure is not None:
        return entry | {"failure": reply.failure.kind}  # its detail may quote data
    if reply.vector is None:
        return entry
    return entry | {
        "n": reply.n,
        "steps": reply.steps,
        "effective_steps": reply.effective_steps,
        "loss": finite(reply.loss),
        "last": finite(reply.last),
        "stateful": reply.stateful,
        "vector": pack_vector(packer, order, reply, plan),
        "integers": packer.integers(order.work, reply.integers, plan),
        "messages": {
            part.key: packer.message(f"{order.work}.{part.key}", part.uplink, reply.client_messages[part.key], plan)
            for part in plan.method.parts
            if part.key in reply.client_messages
        },
    }


def pack_vector(packer: ArrayPacker, order: Order, reply: Reply, plan: Plan) -> str | dict[str, str]:
    """The trained model or, where upload parts have a wire form, their arrays by name."""
    assert reply.vector is not None
    if not reply.packed:
        sent = reply.vector if (unsent := plan.unsent) is None else reply.vector[~unsent]
        return packer.add(f"{order.work}.vector", sent)
    return {name: packer.add(f"{order.work}.update.{name}", array) for name, array in reply.packed.items()}


def shared(vector: torch.Tensor, plan: Plan) -> torch.Tensor:
    """The entries that may travel, of a vector along P or the model."""
    return vector if plan.private is None else vector[~plan.private[: len(vector)]]


def finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def finite_only(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
