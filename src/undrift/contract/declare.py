"""What travels between a site and the server is declared, and only that travels.

    uplink = {"control": Along("P"), "phi": Number()}

From the declaration the engine validates what arrives, keeps private entries at home, counts bytes, and says before
a run what leaves a site. A message is a flat dict from declared names to values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from undrift.contract.context import Plan


class Malformed(ValueError):
    """A message is not what its part declared."""


Conceal = Callable[[torch.Tensor], torch.Tensor]
SLACK = 1e-5  # of a limit: what was computed in float32 may exceed it by rounding


@dataclass(frozen=True)
class Number:
    """One finite number from `low` to `high`. A limit may be a function of the plan."""

    low: float | Callable[[Plan], float] = -math.inf
    high: float | Callable[[Plan], float] = math.inf

    def read(self, value: Any, plan: Plan, conceal: Conceal) -> float:
        value = value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Malformed(f"is {type(value).__name__}, not a number")
        try:
            number = float(value)
        except OverflowError:
            raise Malformed("is an integer beyond float") from None
        if not math.isfinite(number):
            raise Malformed(f"is {number}")
        low, high = (limit(plan) if callable(limit) else limit for limit in (self.low, self.high))
        if not low - SLACK * abs(low) <= number <= high + SLACK * abs(high):
            raise Malformed(f"is {number:.6g}, which is not between {low:.6g} and {high:.6g}")
        return number

    @property
    def bounded(self) -> bool:
        """Whether the range has both ends. Without them a deployment compares the sites' numbers with each other."""
        return self.low != -math.inf and self.high != math.inf

    def floats(self, plan: Plan) -> int:
        return 1

    def __str__(self) -> str:
        return "one number"


@dataclass(frozen=True)
class Array:
    """A float32 array; a size may be a number or "classes"."""

    size: int | str

    def read(self, value: Any, plan: Plan, conceal: Conceal) -> torch.Tensor:
        return finite(value, self.floats(plan))

    def floats(self, plan: Plan) -> int:
        return plan.classes if self.size == "classes" else int(self.size)

    def __str__(self) -> str:
        return f"{self.size} numbers" if isinstance(self.size, int) else f"one number per {self.size}"


@dataclass(frozen=True)
class Along:
    """A vector along the parameters ("P") or the whole model ("model"). Private entries of the former arrive as 0,
    of the latter as those the other side already has."""

    what: str

    def read(self, value: Any, plan: Plan, conceal: Conceal) -> torch.Tensor:
        vector = finite(value, self.size(plan))
        if plan.private is None:
            return vector
        return vector.masked_fill(plan.private[: plan.layout.nP], 0.0) if self.what == "P" else conceal(vector)

    def size(self, plan: Plan) -> int:
        return plan.layout.nP if self.what == "P" else plan.layout.n

    def floats(self, plan: Plan) -> int:
        private = 0 if plan.private is None else int(plan.private[: self.size(plan)].sum())
        return self.size(plan) - private

    def __str__(self) -> str:
        return "a vector along the parameters" if self.what == "P" else "a whole model"


@dataclass(frozen=True)
class Models:
    """Up to `most` models by the id of the client they come from."""

    most: int

    def read(self, value: Any, plan: Plan, conceal: Conceal) -> dict[int, torch.Tensor]:
        along = Along("model")
        return {client: along.read(model, plan, conceal) for client, model in by_client(value, self.most)}

    def floats(self, plan: Plan) -> int:
        return self.most * (1 + Along("model").floats(plan))

    def __str__(self) -> str:
        return f"up to {self.most} other clients' models"


@dataclass(frozen=True)
class Numbers:
    """Up to `most` numbers by client id; the ids must be among those the other side was sent."""

    most: int

    def read(self, value: Any, plan: Plan, conceal: Conceal) -> dict[int, float]:
        return {client: Number().read(number, plan, conceal) for client, number in by_client(value, self.most)}

    def floats(self, plan: Plan) -> int:
        return 2 * self.most

    def __str__(self) -> str:
        return f"up to {self.most} numbers about other clients"


Kind = Number | Array | Along | Models | Numbers
Declaration = Mapping[str, Kind]


def read(
    part: str,
    declared: Declaration,
    message: Any,
    plan: Plan,
    conceal: Conceal,
    server_message: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A fresh copy of a message, checked against its declaration, without private entries. Names that were declared
    may be absent (a broadcast that has nothing to say yet); names that were not are refused."""
    if not isinstance(message, dict):
        raise Malformed(f"{part} sent {type(message).__name__} where a dict of its declared names belongs")
    if strange := sorted(set(message) - set(declared)):
        raise Malformed(f"{part} sent {strange[0]!r}, which it does not declare (declared: {sorted(declared)})")
    out: dict[str, Any] = {}
    for name in sorted(message):
        try:
            out[name] = declared[name].read(message[name], plan, conceal)
        except Malformed as wrong:
            raise Malformed(f"{part}'s {name!r} {wrong}") from None
        if isinstance(declared[name], Numbers) and server_message is not None:
            sent = {client for value in server_message.values() if isinstance(value, dict) for client in value}
            if foreign := sorted(set(out[name]) - sent):
                raise Malformed(f"{part}'s {name!r} speaks of client {foreign[0]}, whose model it was not sent")
    return out


def size_in_bytes(declared: Declaration, plan: Plan) -> int:
    return 4 * sum(kind.floats(plan) for kind in declared.values())


def finite(value: Any, size: int) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise Malformed(f"is {type(value).__name__}, not a tensor")
    if value.shape != (size,):
        raise Malformed(f"has shape {tuple(value.shape)} instead of ({size},)")
    if not value.is_floating_point():
        raise Malformed(f"has dtype {value.dtype} instead of float32")
    copy: torch.Tensor = value.detach().to(device="cpu", dtype=torch.float32, copy=True)
    if not (math.isfinite(copy.sum()) or torch.isfinite(copy).all()):  # the sum is ten times cheaper, and NaN shows
        raise Malformed("has a value that is not finite")
    return copy


def by_client(value: Any, most: int) -> list[tuple[int, Any]]:
    if not isinstance(value, dict) or not all(isinstance(client, int) for client in value):
        raise Malformed("is not a dict by client id")
    if len(value) > most:
        raise Malformed(f"has {len(value)} entries, more than the declared {most}")
    return sorted(value.items())
