"""An envelope: one JSON object and named arrays. Nothing else travels between the server and a site.

Arrays are raw little-endian bytes. Their number must fit the declared shape, and nothing is unpickled.
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

MAX_TEXT = 500  # characters kept of a sentence from the other side
DTYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "int64": np.dtype("<i8")}


@dataclass(frozen=True)
class Envelope:
    head: dict[str, Any]
    arrays: dict[str, torch.Tensor] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        return json.dumps(self.head, sort_keys=True, allow_nan=False)

    def sizes(self) -> dict[str, int]:
        """Bytes by name, as a site logs them and the server counts them."""
        return {"header": len(self.text.encode()), **{name: len(raw(t)) for name, t in self.arrays.items()}}

    @property
    def bytes(self) -> int:
        return sum(self.sizes().values())


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.numpy().astype(DTYPES[str(tensor.dtype).removeprefix("torch.")], copy=False).tobytes()


def parse_envelope(text: str, arrays: Mapping[str, tuple[str, Sequence[int], bytes]]) -> Envelope:
    """An envelope from received data: the header's text, and (dtype, shape, bytes) by name."""

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


def check_fields(entry: Any, kinds: Mapping[str, tuple[type, ...]], optional: Sequence[str] = ()) -> dict[str, Any]:
    """The entry, if it is an object with exactly these fields of these types. Otherwise `Malformed`."""
    if not isinstance(entry, dict):
        raise Malformed(f"an entry is {type(entry).__name__}, not an object")
    if unexpected := sorted(set(entry) - set(kinds)):
        raise Malformed(f"the field {unexpected[0]!r} is not expected")
    for name, kind in kinds.items():
        if name not in entry:
            if name in optional:
                continue
            raise Malformed(f"the field {name!r} is missing")
        value = entry[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and bool not in kind):
            raise Malformed(f"the field {name!r} has type {type(value).__name__}")
    return entry
