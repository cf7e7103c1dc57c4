"""A method: parts joined along the axes by three ranks.

What the user names on the axis itself (a part, `@name`, `--weighting`) beats what a published name brings, which beats
what it merely prefers. The higher rank wins, and a notice says what gave way. Two different parts of the same rank are an
error that names both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch

from undrift.contract.context import Plan, Problem
from undrift.contract.declare import Models
from undrift.contract.parts import AXES, SINGLE, Part, axes_of, defines
from undrift.core.errors import BadRequest
from undrift.core.vector import Layout

NAMED, BROUGHT, PREFERRED = 3, 2, 1
CLIENT_HOOKS = (
    "init_client",
    "hold_out",
    "before_start",
    "start",
    "before_training",
    "epoch_indices",
    "batch_indices",
    "update_mask",
    "logits",
    "sample_weights",
    "loss",
    "gradient",
    "after_clip",
    "proximal_strength",
    "after_step",
    "after_training",
    "personal_models",
    "upload",
)


@dataclass(frozen=True)
class Bundle:
    """What a published name stands for: the parts it brings, and those it merely prefers."""

    brings: tuple[Part, ...] = ()
    prefers: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Method:
    """A composition that is complete: every single-place axis is filled."""

    name: str
    parts: tuple[Part, ...]  # each once, axis by axis
    notices: tuple[str, ...] = field(default=(), compare=False)  # what gave way
    chosen: tuple[str, ...] = field(default=(), compare=False)  # keys of parts named by the user or brought

    def on(self, axis: str) -> list[Any]:
        return [part for part in self.parts if axis in axes_of(part)]

    def one(self, axis: str) -> Any:
        """The part on a single-place axis (None for `personalize` where there is none)."""
        return self.first_on.get(axis)

    @cached_property
    def first_on(self) -> dict[str, Part]:
        """The first part on every axis: asked for each client of each round."""
        return {axis: part for part in reversed(self.parts) for axis in axes_of(part)}

    @cached_property
    def at_client(self) -> tuple[Part, ...]:
        """The parts that have something to do at a client."""
        return tuple(part for part in self.parts if any(defines(part, hook) for hook in CLIENT_HOOKS))

    def defining(self, hook: str) -> Sequence[Part]:
        """The parts that define a hook: asked for each client of each round."""
        if hook not in self._defining:
            self._defining[hook] = [part for part in self.parts if defines(part, hook)]
        return self._defining[hook]

    @cached_property
    def _defining(self) -> dict[str, Sequence[Part]]:
        return {}

    def resolve(self, plan: Plan) -> Method:
        return replace(self, parts=tuple(part.resolve(plan) for part in self.parts))

    def private_names(self, layout: Layout) -> set[str]:
        return {name for part in self.on("private") for name in part.entries(layout)}

    @property
    def freezes(self) -> list[str]:
        """Patterns of parameters that are not trained."""
        return [pattern for part in self.parts for pattern in part.freezes]

    def private_mask(self, layout: Layout) -> torch.Tensor | None:
        names = self.private_names(layout)
        return layout.mask(names) if names else None

    def server_mask(self, layout: Layout) -> torch.Tensor | None:
        names = {name for part in self.on("combine") for name in part.server_entries(layout)}
        return layout.mask(names) if names else None

    @property
    def moves_start(self) -> bool:
        return self.one("personalize") is not None and defines(self.one("personalize"), "start")

    @property
    def shows_models(self) -> bool:
        """Whether clients get to see each other's models."""
        return any(isinstance(kind, Models) for part in self.parts for kind in part.downlink.values())

    def check(self, plan: Plan) -> Iterable[Problem]:
        """What speaks against this method in this run: the parts' own words, and the rules for pairs, which rest on
        hooks and declarations and never on a part's name."""
        for part in self.parts:
            for need in part.needs:
                if need in plan.lacks:
                    yield Problem("error", f"{part.name} needs {NEEDS[need].replace('this task', plan.task.name)}")
            yield from part.check(plan)
        combine, weighting = self.one("combine"), self.one("weighting")
        if combine.ignores_weights and weighting.key in self.chosen:
            yield Problem(
                "error", f"{combine.name} ignores weights, so the weighting {weighting.name} would do nothing"
            )
        if weighting.signed and not (combine.averages or combine.ignores_weights):
            yield Problem(
                "error",
                f"{weighting.name} may give negative weights here, and {combine.name} is no plain mean; use one of the two",
            )
        if weighting.signed and plan.weight_cap < 1:
            yield Problem(
                "error",
                f"{weighting.name} may give negative weights here, which --weight-cap {plan.weight_cap:g} cannot bound; "
                "use its default normalisation, or no cap",
            )
        server = self.one("server")
        if defines(server, "model_for"):
            if self.moves_start:
                yield Problem(
                    "error",
                    f"{server.name} sends every client another model, and "
                    f"{self.one('personalize').name} starts from its own; use one of the two",
                )
            for part in self.parts:
                if part.measures == "received":
                    yield Problem(
                        "warning",
                        f"{part.name} measures the received model, and {server.name} sends every "
                        "client another one: the clients are not compared under the same model",
                    )


NEEDS = {
    "effective_steps": "the normalised step count, which has no meaning with adam, a persistent momentum or a method that trains "
    "parts of the model in turn; use --optimizer sgd without --persist-momentum",
    "labels": "one class per sample, which this task does not have; use another method, or --task classification",
    "class_logits": "logits of classes, which this task's output is not; use another method",
    "errors": "predictions that are right or wrong, which this task's are not; use another method",
    "proxy": "a proxy set at the server; add --proxy 0.02",
    "adapters": 'low-rank adapters, and the model has none; add --adapt "lora(rank=8)"',
    "features": "the features that enter the last linear layer, one vector per sample, and the model has none: its output is "
    "not that of a linear layer, or it has several per sample; use another method",
}


class Ranked(NamedTuple):
    """A part, how strongly it was asked for, and by which name."""

    rank: int
    part: Part
    origin: str


def join(ranked: Sequence[Ranked], name: str, defaults: Sequence[Part]) -> Method:
    """The method that ranked parts make; `defaults` fill the axes that need exactly one part and have none."""
    kept, notices = without_repeats(ranked)
    for axis in SINGLE:
        kept, more = settle(axis, kept)
        notices += more
    choosing = [one.part for one in kept if defines(one.part, "epoch_indices") or defines(one.part, "batch_indices")]
    if len(choosing) > 1:
        first, second = choosing[:2]
        raise BadRequest(f"{first.name} and {second.name} both pick the samples of an epoch; use one of them")
    parts = [one.part for one in kept]
    for default in defaults:
        if not any(default.axis in axes_of(part) for part in parts):
            parts.append(default)
    axes = list(AXES)
    # Upload parts act in the order in which they are given.
    parts.sort(key=lambda part: (axes.index(part.axis), "" if part.axis == "upload" else part.key))
    chosen = tuple(one.part.key for one in kept if one.rank > PREFERRED)
    return Method(name, tuple(parts), tuple(notices), chosen)


def without_repeats(ranked: Sequence[Ranked]) -> tuple[list[Ranked], list[str]]:
    """Each part once. Equal ones count once, a higher rank replaces a lower one, and different parameters at the same
    rank are ambiguous."""
    kept, notices = list[Ranked](), list[str]()
    for new in ranked:
        old = next((one for one in kept if one.part.key == new.part.key), None)
        if old is None:
            kept.append(new)
        elif old.part == new.part:
            kept[kept.index(old)] = new._replace(rank=max(new.rank, old.rank))
        elif old.rank == new.rank == PREFERRED:
            notices.append(f"preferred {new.part.key} was given twice with different values; the first stands")
        elif old.rank == new.rank:
            raise BadRequest(
                f"{new.part.name} is there twice with different values, {old.part} and {new.part}; name it once"
            )
        else:
            winner, loser = (new, old) if new.rank > old.rank else (old, new)
            kept[kept.index(old)] = winner
            notices.append(f"{winner.part} replaces {loser.part}, which {loser.origin} brings")
    return kept, notices


def settle(axis: str, kept: list[Ranked]) -> tuple[list[Ranked], list[str]]:
    """At most one part on an axis that takes one: the part with the highest rank."""
    rivals = [one for one in kept if axis in axes_of(one.part)]
    if len(rivals) < 2:
        return kept, []
    top = max(one.rank for one in rivals)
    winner, *equals = [one for one in rivals if one.rank == top]
    if equals and top == PREFERRED:
        names = " and ".join(f"{one.origin} ({one.part.name})" for one in (winner, *equals))
        remaining = [one for one in kept if one not in rivals]
        return remaining, [f"the {axis} preferred by {names} differ, so the default stands"]
    if equals:
        other = equals[0]
        raise BadRequest(
            f"{winner.part.name} (of {winner.origin}) and {other.part.name} (of {other.origin}) both want to be the {axis}; "
            f"choose one{' with @name' if axis == 'weighting' else f' with --{axis}'}"
        )
    losers = [one for one in rivals if one is not winner]
    for loser in losers:
        if len(axes_of(loser.part)) > 1:
            raise BadRequest(
                f"{loser.part.name} is also the {axis} part of its method; "
                f"{winner.part.name} cannot take half of it away"
            )
    notices = [
        f"{axis}: {winner.part.name}; {one.part.name}, which {one.origin} "
        f"{'brings' if one.rank == BROUGHT else 'prefers'}, gives way"
        for one in losers
    ]
    return [one for one in kept if one not in losers], notices
