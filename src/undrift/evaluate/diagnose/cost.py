"""What a round costs: floating-point operations and bytes.

    flops         of a participant: its whole round once more under PyTorch's counter, which sees matrix products and
                  convolutions, forward and backward, of the training and of everything the parts add (twins, replicas,
                  scoring passes); their sum under no client. It sees nothing elementwise
    elementwise   of a participant: numbers written by everything else, such as a proximal term, activations and SGD's
                  own arithmetic (its fused kernel counts once per number); their sum under no client
    server        numbers written at the server between the answers and the next model; `server_products` are the operations
                  of its matrix products, and `server_assignments` n³ for every assignment of n units (FedMA's matching)
    bytes_up      what the client sent: its model without private entries (as upload parts pack it), integer buffers, messages
    bytes_down    what it was sent

The counter multiplies a participant's training time; the replay changes nothing of the run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from undrift.evaluate.diagnose.base import Ask, Diagnostic, Findings, RoundView
from undrift.round.orders import Order, Reply

if TYPE_CHECKING:
    from undrift.round.runtime import Runtime


@dataclass(frozen=True)
class Cost(Diagnostic):
    name = "cost"
    counts_the_server = True

    def observe(self, view: RoundView, found: Findings, ask: Ask) -> None:
        answered = {reply.client: reply for reply in view.answers}
        orders = [order for order in view.orders if order.client in answered]
        private = 0 if view.plan.private is None else int(view.plan.private.sum())
        sums = {"flops": 0.0, "elementwise": 0.0, "bytes_up": 0.0, "bytes_down": 0.0}
        counted = ask([replace(order, keep_round=None) for order in orders])
        for order, one in zip(orders, counted):
            reply = answered[order.client]
            model = 4 * (view.plan.layout.n - private)
            values = {
                "flops": one["flops"],
                "elementwise": one["elementwise"],
                "bytes_up": sent_bytes(reply, model) + in_bytes(reply.integers) + in_bytes(reply.client_messages),
                "bytes_down": model + in_bytes(order.integers) + in_bytes(order.server_messages),
            }
            for metric, value in values.items():
                found.number(metric, value, order.client, "L2")
                sums[metric] += value
        for metric, value in sums.items():
            found.number(metric, value)
        found.number("server", view.server_work.numbers)
        found.number("server_products", view.server_work.products)
        found.number("server_assignments", view.server_work.assignments)

    def work(self, runtime: Runtime, order: Order) -> dict[str, Any]:
        from torch.utils.flop_counter import FlopCounterMode

        from undrift.evaluate.diagnose.counting import Written
        from undrift.round.client import ClientRound

        work = ClientRound(runtime, replace(order, work="train"))
        with Written() as written, FlopCounterMode(display=False) as counter:
            work.train()
        return {"flops": counter.get_total_flops(), "elementwise": written.numbers}


def sent_bytes(reply: Reply, model: int) -> int:
    """The bytes of the update: what upload parts noted that they packed, else the model's."""
    return next(
        (int(json.loads(value)) for part, name, value in reply.notes if part.startswith("upload.") and name == "bytes"),
        model,
    )


def in_bytes(tree: Any) -> int:
    """Tensors by their bytes, numbers as float32; names are agreed on beforehand and do not travel."""
    if isinstance(tree, torch.Tensor):
        return tree.numel() * tree.element_size()
    if isinstance(tree, dict):
        return sum(in_bytes(value) + (4 if isinstance(name, int) else 0) for name, value in tree.items())
    if isinstance(tree, (list, tuple)):
        return sum(in_bytes(value) for value in tree)
    return len(tree) if isinstance(tree, str) else 0 if tree is None else 4
