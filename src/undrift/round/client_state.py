"""A client's state: what it carries from one of its rounds to the next, and where it is kept in between.

The state travels to the client inside its order and comes back inside its reply. A new version is kept as soon as the
client has answered, as a real site would do it. Whether that version counts is the server's decision (`state_round`),
so a lost reply, a rolled-back server and a resumed run all end in the same place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch

from undrift.contract.context import Tree, copied, finite_tree, moved
from undrift.core.vector import Integers
from undrift.round.orders import Order, Reply
from undrift.store.states import States


@dataclass
class ClientState:
    """`None` and empty fields are not stored."""

    parts: dict[str, Tree] = field(default_factory=dict)  # by part
    private: torch.Tensor | None = None  # the private entries of the vector
    private_integers: Integers = field(default_factory=dict)
    momentum: torch.Tensor | None = None  # of the local optimizer, with persist_momentum
    trained: torch.Tensor | None = None  # the last trained vector, where absent clients are evaluated
    new: bool = False  # the client was never committed

    @staticmethod
    def of(order: Order, device: torch.device) -> ClientState:
        """The state an order carries, with its tensors on the model's device."""
        if order.state is None:
            return ClientState(new=True)
        # A copy: a part that changes its state in place and then fails has changed nothing.
        tree = cast(Mapping[str, Any], moved(copied(order.state), device))
        private = tree.get("private") or {}
        return ClientState(
            tree.get("parts", {}),
            private.get("vector"),
            private.get("integers", {}),
            tree.get("momentum"),
            tree.get("held"),
        )

    def put_into(self, reply: Reply, private: bool) -> Reply:
        """The reply with this state; a state that is not finite fails the client."""
        tree: dict[str, Tree] = {"parts": self.parts}
        if private:
            assert self.private is not None
            tree["private"] = {"vector": self.private.cpu(), "integers": cast(Tree, self.private_integers)}
        if self.momentum is not None:
            tree["momentum"] = self.momentum.cpu().clone()
        if self.trained is not None:
            tree["held"] = self.trained.cpu().clone()
        if not finite_tree(tree):
            return reply.failed("nonfinite", "the client's new state is not finite")
        if len(tree) > 1 or self.parts:
            reply.state, reply.stateful = tree, True
        return reply


def fetch(states: States, order: Order) -> Order:
    """The order with the committed version of its client's state."""
    if order.work == "evaluate" or order.state_round is None:
        return order
    return replace(order, state=states.get("state", order.client, order.state_round))


def keep(states: States, order: Order, reply: Reply) -> None:
    """Store the new state of a reply and take it out of the reply; drop versions that no checkpoint needs."""
    if reply.stateful and reply.failure is None:
        states.put("state", reply.client, reply.round, reply.state)
        if order.keep_round is not None:
            states.drop_below("state", reply.client, order.keep_round)
    reply.state = None
