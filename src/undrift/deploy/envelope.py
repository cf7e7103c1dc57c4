"""A parcel: one JSON object and named arrays, which is all that ever crosses the border.

Arrays are raw little-endian bytes whose number must fit the shape they claim; nothing is unpickled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from undrift.contract.declare import Malformed

LONGEST = 500  # characters of a sentence from the other side
DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "int64": np.dtype("<i8")}


@dataclass(frozen=True)
class Envelope:
    head: dict[str, Any]
    arrays: dict[str, torch.Tensor] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        return json.dumps(self.head, sort_keys=True, allow_nan=False)

    def sizes(self) -> dict[str, int]:
        """Bytes by name: what a site's log says, and what the server counts."""
        return {"header": len(self.text.encode()), **{name: len(raw(t)) for name, t in self.arrays.items()}}

    @property
    def bytes(self) -> int:
        return sum(self.sizes().values())


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.numpy().astype(DTYPES[str(tensor.dtype).removeprefix("torch.")], copy=False).tobytes()


def opened(text: str, arrays: Mapping[str, tuple[str, Sequence[int], bytes]]) -> Envelope:
    """A parcel from what came over the wire: (dtype, shape, bytes) by name."""

    def refuse(constant: str) -> Any:
        raise Malformed(f"the header holds {constant}")

    try:
        head = json.loads(text, parse_constant=refuse)
    except (json.JSONDecodeError, RecursionError) as error:
        raise Malformed(f"the header is not JSON: {error}") from None
    if not isinstance(head, dict):
        raise Malformed("the header is not a JSON object")
    tensors = {}
    for name, (dtype, shape, data) in arrays.items():
        if dtype not in DTYPES:
            raise Malformed(f"{name} has dtype {dtype} instead of float32 or int64")
        if any(length < 0 for length in shape) or len(data) != math.prod(shape) * DTYPES[dtype].itemsize:
            raise Malformed(f"{name} has {len(data)} bytes, which do not fit its shape {tuple(shape)}")
        tensors[name] = torch.from_numpy(np.frombuffer(data, DTYPES[dtype]).astype(dtype).reshape(tuple(shape)))
    return Envelope(head, tensors)


def fields(words: Any, kinds: Mapping[str, tuple[type, ...]], optional: Sequence[str] = ()) -> dict[str, Any]:
    """Exactly these names with these types."""
    if not isinstance(words, dict):
        raise Malformed(f"{type(words).__name__} came where an object belongs")
    if strange := sorted(set(words) - set(kinds)):
        raise Malformed(f"it has {strange[0]!r}, which nobody asked for")
    for name, kind in kinds.items():
        if name not in words:
            if name in optional:
                continue
            raise Malformed(f"it lacks {name!r}")
        value = words[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kind):
            raise Malformed(f"{name} is {type(value).__name__}")
    return words
