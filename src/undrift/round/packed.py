"""An update as it travels: every upload part that has a wire form packs what the part before it left.

`packed` and `unpacked` are exact inverses, so a real site and a simulation give the same bits.
"""

from __future__ import annotations

from typing import Any

import torch

from undrift.contract.context import Plan
from undrift.contract.declare import Malformed
from undrift.contract.parts import defines

VALUES = "values"  # what no part packed


def packed(plan: Plan, update: torch.Tensor) -> dict[str, torch.Tensor]:
    """The arrays that travel for an update. Private entries do not, nor those that no client changes."""
    values = update if (unsent := plan.unsent) is None else update[~unsent]
    arrays: dict[str, torch.Tensor] = {}
    for part in packers(plan):
        made, values = part.pack(values)
        arrays |= {f"{part.name}.{name}": array for name, array in made.items()}
    return {**arrays, VALUES: values} if len(values) else arrays


def unpacked(plan: Plan, arrays: dict[str, torch.Tensor]) -> torch.Tensor:
    """The update that `packed` was given. Whatever does not fit the parts is `Malformed`."""
    size = shared_size(plan)
    steps: list[tuple[Any, int]] = []
    for part in packers(plan):
        steps.append((part, size))
        size = part.packed(size)[1]
    values = arrays.get(VALUES, torch.empty(0))
    if values.dtype != torch.float32 or any(array.ndim != 1 for array in arrays.values()):
        raise Malformed("the update's values are not rows of float32 numbers")
    owners = {part.name for part in packers(plan)}
    if strange := sorted(name for name in arrays if name != VALUES and name.partition(".")[0] not in owners):
        raise Malformed(f"{strange[0]!r} belongs to no upload part")
    for part, expected in reversed(steps):
        own = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{part.name}.")}
        values = part.unpack(own, values, expected)
    if len(values) != (shared := shared_size(plan)):
        raise Malformed(f"the update has {len(values)} entries instead of {shared}")
    if (unsent := plan.unsent) is None:
        return values
    update = torch.zeros(plan.layout.n)
    update[~unsent] = values
    return update


def most_packed_bytes(plan: Plan) -> int:
    """The most bytes that the arrays of one update can have."""
    size = shared_size(plan)
    total = 0
    for part in packers(plan):
        arrays, size = part.packed(size)
        total += sum(length * dtype.itemsize for dtype, length in arrays.values())
    return total + 4 * size


def packers(plan: Plan) -> list[Any]:
    return [part for part in plan.method.on("upload") if defines(part, "pack")]


def shared_size(plan: Plan) -> int:
    """How many entries travel to the server."""
    return plan.layout.n if (unsent := plan.unsent) is None else int((~unsent).sum())
