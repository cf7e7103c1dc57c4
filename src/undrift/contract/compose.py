"""A method: parts joined along the axes by three ranks.

What the user names on the axis itself (a part, `@name`, `--weighting`) beats what a published name brings, which beats
what it merely prefers. The higher rank wins, and a notice says what gave way. Two different parts of the same rank are an
error that names both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

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
    "update_mask",
    "logits",
    "sample_weights",
    "loss",
    "gradient",
    "proximal_strength",
    "after_step",
    "after_training",
    "personal_models",
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
        return next(iter(self.on(axis)), None)

    @cached_property
    def at_client(self) -> tuple[Part, ...]:
        """The parts that have something to do at a client."""
        return tuple(part for part in self.parts if any(defines(part, hook) for hook in CLIENT_HOOKS))

    def resolve(self, plan: Plan) -> Method:
        return replace(self, parts=tuple(part.resolve(plan) for part in self.parts))

    def private_names(self, layout: Layout) -> set[str]:
        return {name for part in self.on("private") for name in part.entries(layout)}

    def private_mask(self, layout: Layout) -> torch.Tensor | None:
        names = self.private_names(layout)
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
                    yield Problem("error", f"{part.name} needs {NEEDS[need]}")
            yield from part.check(plan)
        combine, weighting = self.one("combine"), self.one("weighting")
        if combine.ignores_weights and weighting.key in self.chosen:
            yield Problem(
                "error", f"{combine.name} ignores weights, so the weighting {weighting.name} would do nothing"
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
    "proxy": "a proxy set at the server; add --proxy 0.02",
    "features": "the features that enter the last linear layer, and the model's logits are not the output of one; "
    "let the model return what its last linear layer gives",
}


def join(ranked: Sequence[tuple[int, Part, str]], name: str, defaults: Sequence[Part]) -> Method:
    """The method that ranked parts make; `defaults` fill the axes that need exactly one part and have none."""
    said: list[str] = []
    kept: list[tuple[int, Part, str]] = []
    # The same part twice: equal ones count once; other parameters at the same rank are ambiguous.
    for rank, part, origin in ranked:
        twin = next((k for k in kept if k[1].key == part.key), None)
        if twin is None:
            kept.append((rank, part, origin))
        elif twin[1] == part:
            kept[kept.index(twin)] = (max(rank, twin[0]), part, origin)
        elif twin[0] == rank == PREFERRED:
            said.append(f"preferred {part.key} was given twice with different values; the first stands")
        elif twin[0] == rank:
            raise BadRequest(f"{part.name} is there twice with different values, {twin[1]} and {part}; name it once")
        else:
            winner, loser = ((rank, part, origin), twin) if rank > twin[0] else (twin, (rank, part, origin))
            kept[kept.index(twin)] = winner
            said.append(f"{winner[1]} replaces {loser[1]}, which {loser[2]} brings")
    for axis in SINGLE:
        kept, words = settle(axis, kept)
        said += words
    picks = [part for _, part, _ in kept if defines(part, "epoch_indices")]
    if len(picks) > 1:
        raise BadRequest(f"{picks[0].name} and {picks[1].name} both pick the samples of an epoch; use one of them")
    parts = [part for _, part, _ in kept]
    for default in defaults:
        if not any(default.axis in axes_of(part) for part in parts):
            parts.append(default)
    order = list(AXES)
    parts.sort(key=lambda part: (order.index(part.axis), part.key))
    chosen = tuple(part.key for rank, part, _ in kept if rank > PREFERRED)
    return Method(name, tuple(parts), tuple(said), chosen)


def settle(axis: str, kept: list[tuple[int, Part, str]]) -> tuple[list[tuple[int, Part, str]], list[str]]:
    """Who takes a single place."""
    rivals = [k for k in kept if axis in axes_of(k[1])]
    if len(rivals) < 2:
        return kept, []
    top = max(rank for rank, _, _ in rivals)
    best = [k for k in rivals if k[0] == top]
    if len(best) > 1 and top == PREFERRED:
        names = " and ".join(f"{k[2]} ({k[1].name})" for k in best)
        return [k for k in kept if k not in rivals], [f"the {axis} preferred by {names} differ, so the default stands"]
    if len(best) > 1:
        raise BadRequest(
            f"{best[0][1].name} (of {best[0][2]}) and {best[1][1].name} (of {best[1][2]}) both want to be the {axis}; "
            f"choose one{' with @name' if axis == 'weighting' else f' with --{axis}'}"
        )
    for loser in rivals:
        if loser is not best[0] and len(axes_of(loser[1])) > 1:
            raise BadRequest(
                f"{loser[1].name} is also the {axis} part of its method; {best[0][1].name} cannot take half of it away"
            )
    losers = [k for k in rivals if k is not best[0]]
    said = [
        f"{axis}: {best[0][1].name}; {k[1].name}, which {k[2]} {'brings' if k[0] == BROUGHT else 'prefers'}, gives way"
        for k in losers
    ]
    return [k for k in kept if k not in losers], said
