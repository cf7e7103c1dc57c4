"""Data sets with options: `shapes(clients=50)`, `shakespeare(roles=100)`, `cifar-10(train=10000, test=2000)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from undrift.core.errors import BadRequest

if TYPE_CHECKING:
    from undrift.data.cache import Arrays


def at_least(data: str, name: str, value: object, least: int) -> None:
    """Refuse an option that is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadRequest(f"{name} of {data} must be a whole number of at least {least}, not {value!r}")


def part_of(data: str, arrays: Arrays, train: int | None = None, test: int | None = None) -> Arrays:
    """So many training and test samples of a data set. They are evenly spaced, because some files are in the order of their
    domains or classes, and the same for every seed."""
    part = dict(arrays)
    for split, wanted in (("train", train), ("test", test)):
        if wanted is None:
            continue
        at_least(data, split, wanted, 1)
        total = len(arrays[f"y_{split}"])
        if wanted > total:
            raise BadRequest(
                f"{data} has {total} {split} samples, and {wanted} were asked for; ask for {total} or fewer"
            )
        rows = np.arange(wanted) * total // wanted
        part |= {key: array[rows] for key, array in arrays.items() if key.endswith(f"_{split}")}
    return part
