"""What a site agrees to. Its own `policy.toml`, beside its data.py, is checked at the site before an answer leaves.

methods = ["scaffold+fliu"]                 # as `undrift deploy check` prints them; without the key: any
messages = ["objective.scaffold.change"]    # declared messages that may leave; without the key: any
metrics = ["accuracy", "loss"]              # that may leave; "recall:3" tells how often class 3 occurs; without the key:
                                            # the headline of the task and the loss
works = ["train", "personalize"]            # what the server may order
max_rounds = 200                            # training replies that may leave, of all runs in the site's folder
size = "exact"                              # or "rounded": up to two digits, at least to tens
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le

from undrift.contract.context import Plan
from undrift.core.errors import BadRequest
from undrift.core.files import read_toml
from undrift.core.schema import LARGEST, Name, check, setting
from undrift.experiment.setup import Setup
from undrift.round.orders import Order, Reply

WORKS = ("train", "personalize")  # all that a deployment orders
DECIMALS = 3  # of metrics and losses, where the size is rounded: k/n would tell n


class Refused(BadRequest):
    """The site refuses. The code leaves; the sentence stays in its log."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True)
class Policy:
    """The keys of policy.toml."""

    methods: list[Name] | None = setting(None, "methods, as `undrift deploy check` prints them; without the key any")
    messages: list[Name] | None = setting(None, "declared messages that may leave; without the key any")
    metrics: list[Name] | None = setting(None, "metrics that may leave; without the key the headline and the loss")
    works: Sequence[Literal["train", "personalize"]] = setting(WORKS, "what the server may order")
    max_rounds: Annotated[int, Ge(0), Le(LARGEST)] | None = setting(
        None, "training replies that may leave, of all runs in the site's folder"
    )
    size: Literal["exact", "rounded"] = setting("exact", "whether the number of samples is told exactly")

    @staticmethod
    def read(path: Path) -> Policy:
        """The policy in a file; the defaults if there is none. A site must not believe in a rule that is not applied, so
        what a policy cannot say is refused."""
        if not path.exists():
            return Policy()
        try:
            return Policy(**check(Policy, read_toml(path), str(path)))
        except BadRequest as error:
            raise Refused("policy", str(error)) from None

    def check_method(self, setup: Setup) -> None:
        """Before the site joins: the method and all that it would send."""
        if self.methods is not None and setup.method.name not in self.methods:
            raise Refused("policy", f"the policy does not agree to the method {setup.method.name}")
        sent = [f"{part.key}.{name}" for part in setup.plan.method.parts for name in part.uplink]
        for name in sent:
            if self.messages is not None and name not in self.messages:
                raise Refused("policy", f"the policy does not agree to the message {name}")

    def check_orders(self, orders: Sequence[Order], trained: int) -> None:
        """Before anything is computed. `trained` counts the training replies that have left the site's folder."""
        for order in orders:
            if order.work not in self.works:
                raise Refused("policy", f"the policy does not agree to the work {order.work[:40]!r}")
            if order.work == "train" and self.max_rounds is not None and trained >= self.max_rounds:
                raise Refused("policy", f"the policy agrees to {self.max_rounds} rounds, and as many replies have left")
            oldest, used = order.keep_round, order.state_round
            if oldest is not None and (used is None or oldest > used):
                raise Refused(
                    "states", f"the server would delete states before round {oldest}, and uses that of round {used}"
                )
            if order.work == "train" and used is not None and used >= order.round:
                raise Refused("states", f"the server would overwrite the state of round {used} in round {order.round}")

    def apply(self, reply: Reply, plan: Plan, needs_steps: bool) -> Reply:
        """A reply as it may leave."""
        leaving = (plan.task.headline, "loss") if self.metrics is None else self.metrics
        metrics = {
            data: {name: self.told(value) for name, value in found.items() if name in leaving}
            for data, found in reply.metrics.items()
        }
        reply = replace(reply, metrics=metrics)
        if self.size == "exact" or reply.vector is None:
            return reply
        n = rounded_up(reply.n)
        if not needs_steps:  # steps tell the size to within a batch
            reply = replace(reply, steps=plan.epochs * math.ceil(n / plan.batch), effective_steps=None)
        return replace(reply, n=n, loss=self.told(reply.loss), last=self.told(reply.last))

    def told(self, value: float) -> float:
        return round(value, DECIMALS) if self.size == "rounded" and math.isfinite(value) else value

    def told_size(self, n: int) -> int:
        return rounded_up(n) if self.size == "rounded" else n


def rounded_up(n: int) -> int:
    """Up to two significant digits, at least to tens. 0 stays 0.

    >>> [rounded_up(n) for n in (0, 3, 57, 60, 123, 4321)]
    [0, 10, 60, 60, 130, 4400]
    """
    unit = 10 ** max(1, len(str(n)) - 2)
    return -(-n // unit) * unit


def least_samples(told: int) -> int:
    """The fewest samples of a site that tells this number, if it rounds up.

    >>> [least_samples(n) for n in (10, 60, 130, 4400)]
    [1, 51, 117, 3960]
    """
    return max(1, told - max(9, told // 10))
