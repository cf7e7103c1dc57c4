"""Notice a user's function that writes into its arguments. They are views of the data, so it would change the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from undrift.core.errors import BadRequest
from undrift.core.samples import leaves, mapped


def call_on_copies(name: str, function: Callable[..., Any], *tensors: Any) -> Any:
    """`function(*tensors)` on copies of the tensors; refused if it changes one of them. The version counter also shows
    an in-place operation that happens to leave the values as they are, such as a clamp."""
    copies = [mapped(given, torch.clone) for given in tensors]
    leaves_of = [[leaf for one in several for leaf in leaves(one)] for several in (tensors, copies)]
    versions = [leaf._version for leaf in leaves_of[1]]
    value = function(*copies)
    for tensor, copy, version in zip(*leaves_of, versions):
        if copy._version != version or not torch.equal(copy.nan_to_num(), tensor.nan_to_num()):
            raise BadRequest(
                f"{name} changes its input in place, which would overwrite the data; write x = x - 0.5, not x -= 0.5"
            )
    return value
