"""A mix of weighting rules with shares.

    p_k = Σ_r share_r · p_k^r        every rule normalised over the cohort first

The rules are normalised first because the raw scores of two rules have no common scale. A rule whose scores cannot be
normalised in a round (negative, all zero) gives size weights for that round. A client whose score is not finite is left
out. As text: mix([size(), bound(radius=0.1)], [0.5, 0.5]).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch

from undrift.contract.context import Message, normalised
from undrift.contract.declare import Declaration
from undrift.contract.parts import Job, Plan, Problem, Replies, Server, Tree, Weighting, defines
from undrift.core.errors import BadRequest

Context = TypeVar("Context", Job, Server)
SERVER_HOOKS = ("init_server", "message_for", "receive")


@dataclass(frozen=True)
class Mix(Weighting):
    rules: tuple[Weighting, ...]
    shares: tuple[float, ...]

    def validate(self) -> None:
        object.__setattr__(self, "rules", tuple(self.rules))  # lists are accepted; a part must be hashable
        object.__setattr__(self, "shares", tuple(float(share) for share in self.shares))
        if not self.rules or len(self.rules) != len(self.shares):
            raise BadRequest(
                f"mix: rules and shares must be as many, at least one, not {len(self.rules)} and {len(self.shares)}"
            )
        if not all(0 <= share < math.inf for share in self.shares) or sum(self.shares) == 0:
            raise BadRequest(f"mix: shares must be at least 0 and not all 0, not {list(self.shares)}")
        for rule in self.rules:
            if not isinstance(rule, Weighting):
                raise BadRequest(f"mix: {rule} is not a weighting; write its brackets, as in mix([size()], [1])")
            if rule.downlink or any(defines(rule, hook) for hook in SERVER_HOOKS):
                raise BadRequest(
                    f"mix: {rule.name} keeps state at the server or sends something down, and cannot be mixed; leave it out"
                )

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(sorted({need for rule in self.rules for need in rule.needs}))

    @property
    def measures(self) -> str:  # type: ignore[override]
        return next((rule.measures for rule in self.rules if rule.measures), "")

    @property
    def signed(self) -> bool:  # type: ignore[override]
        return any(rule.signed for rule in self.rules)

    @property
    def uplink(self) -> Declaration:
        return {f"{i}.{name}": kind for i, rule in enumerate(self.rules) for name, kind in rule.uplink.items()}

    def resolve(self, plan: Plan) -> Mix:
        return replace(self, rules=tuple(rule.resolve(plan) for rule in self.rules))

    def check(self, plan: Plan) -> list[Problem]:
        return [problem for rule in self.rules for problem in rule.check(plan)]

    def init_client(self, job: Job) -> Tree:
        return joined([rule.init_client(job) for rule in self.rules])

    def hold_out(self, job: Job) -> torch.Tensor:
        return torch.cat([rule.hold_out(job) for rule in self.rules])

    def before_training(self, job: Job, states: Any, server_message: Message) -> list[Any]:
        pairs = zip(self.rules, self.states(states))
        return [rule.before_training(noting(job, i), state, {}) for i, (rule, state) in enumerate(pairs)]

    def after_training(self, job: Job, scratches: list[Any], states: Any) -> tuple[Tree, Message]:
        pairs = zip(self.rules, scratches, self.states(states))
        done = [rule.after_training(noting(job, i), *pair) for i, (rule, *pair) in enumerate(pairs)]
        message = {f"{i}.{name}": value for i, (_, sent) in enumerate(done) for name, value in sent.items()}
        return joined([state for state, _ in done]), message

    def weights(self, server: Server, replies: Replies) -> torch.Tensor:
        total = torch.zeros(len(replies), dtype=torch.float64)
        for i, (rule, share) in enumerate(zip(self.rules, self.shares)):
            if share == 0:
                continue
            own = [
                {name.partition(".")[2]: value for name, value in message.items() if name.startswith(f"{i}.")}
                for message in replies.client_messages
            ]
            total += share * shares_of(
                rule.weights(noting(server, i), replace(replies, client_messages=own)), replies.n, rule.signed
            )
        return total

    def states(self, states: Any) -> list[Any]:
        return [None] * len(self.rules) if states is None else states


def noting(context: Context, i: int) -> Context:
    """A copy of the job or server whose notes are recorded as `i.name`, so that the rules' notes do not collide."""
    own: Any = copy.copy(context)
    own.note = lambda name, *value, **client: context.note(f"{i}.{name}", *value, **client)
    return cast(Context, own)


def joined(states: list[Tree]) -> Tree:
    return None if all(state is None for state in states) else states


def shares_of(raw: torch.Tensor, n: Sequence[int], signed: bool = False) -> torch.Tensor:
    """A rule's weights, which sum to one over the clients with a finite score; nan for the others."""
    finite = [i for i in range(len(raw)) if math.isfinite(raw[i])]
    out = torch.full((len(raw),), math.nan, dtype=torch.float64)
    known = normalised(raw[finite].tolist(), [n[i] for i in finite], signed)[0]
    out[finite] = torch.tensor(known, dtype=torch.float64)
    return out
