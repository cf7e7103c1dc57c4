"""An envelope: one JSON object and named arrays. Nothing else travels between the server and a site.

What arrives is a parcel: text and bytes. Its size is checked before it is opened, and opening it gives values within
limits: integers of 64 bits, numbers that float32 can hold, few dimensions, short texts, little nesting. Arrays are raw
little-endian bytes. Their number must fit the declared shape, and nothing is unpickled.
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
MAX_STRING = 10_000  # characters of any text in a header: a method's resolved parts are the longest
MAX_NAME = 200  # characters of a key or of an array's name
MAX_DEPTH = 8  # objects and lists inside each other; an order has 6
MAX_DIMENSIONS = 8
HEADER_BYTES = 2**16  # of a header, beside what grows with the model and the method
MAX_LENGTH = 2**40  # of one dimension
INT64 = range(-(2**63), 2**63)
LARGEST = float(np.finfo(np.float32).max)  # squares and sums of such numbers stay finite in float64
DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype("<f4"), "int64": np.dtype("<i8"), "int32": np.dtype("<i4"), "int16": np.dtype("<i2"), "uint8": np.dtype("u1"),
}  # fmt: skip


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


RawArray = tuple[str, Sequence[int], bytes]  # dtype, shape, data


@dataclass(frozen=True)
class Parcel:
    """An envelope as it came from the wire. Nothing of it is decoded yet."""

    text: str
    arrays: Mapping[str, RawArray]

    @property
    def bytes(self) -> int:
        """As `Envelope.bytes` counts them at the sender."""
        return length_of(self.text) + sum(len(data) for _, _, data in self.arrays.values())

    def open(self, most: int | None = None) -> Envelope:
        """The envelope. One with more than `most` bytes is refused undecoded. The names of arrays count as well."""
        size = self.bytes + sum(map(length_of, self.arrays))
        if most is not None and size > most:
            raise Malformed(f"it has {size:,} bytes; what is declared needs at most {most:,}")
        return parse_envelope(self.text, self.arrays)


def length_of(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def parse_envelope(text: str, arrays: Mapping[str, RawArray]) -> Envelope:
    """An envelope from received data: the header's text, and (dtype, shape, bytes) by name."""
    try:
        head = json.loads(text, parse_constant=refuse_constant, parse_int=parse_int, parse_float=parse_float)
    except (json.JSONDecodeError, RecursionError) as error:
        raise Malformed(f"the header is not JSON: {error}") from None
    if not isinstance(head, dict):
        raise Malformed("the header is not a JSON object")
    check_tree(head)
    return Envelope(head, {name: parse_array(name, *array) for name, array in arrays.items()})


def refuse_constant(constant: str) -> Any:
    raise Malformed(f"the header holds {constant}")


def parse_int(digits: str) -> int:
    """The length comes first: converting thousands of digits is slow, and Python refuses it with another error."""
    if len(digits) > 20 or int(digits) not in INT64:
        raise Malformed(f"the header holds the integer {digits[:20]}…, which has more than 64 bits")
    return int(digits)


def parse_float(digits: str) -> float:
    number = float(digits)
    if abs(number) > LARGEST:
        raise Malformed(f"the header holds {digits[:40]}, which is beyond float32")
    return number


def check_tree(value: Any, depth: int = MAX_DEPTH) -> None:
    """Refuse a header that is nested too deeply or has a text or name that is too long."""
    if isinstance(value, str) and len(value) > MAX_STRING:
        raise Malformed(f"the header holds a text of {len(value)} characters; at most {MAX_STRING} are accepted")
    if isinstance(value, (dict, list)):
        if not depth:
            raise Malformed(f"the header is nested more than {MAX_DEPTH} deep")
        for name in value if isinstance(value, dict) else ():
            check_name(name)
        for child in value.values() if isinstance(value, dict) else value:
            check_tree(child, depth - 1)


def check_name(name: str) -> None:
    if len(name) > MAX_NAME:
        raise Malformed(f"a name has {len(name)} characters; at most {MAX_NAME} are accepted")


def parse_array(name: str, dtype: str, shape: Sequence[int], data: bytes) -> torch.Tensor:
    check_name(name)
    if dtype not in DTYPES:
        raise Malformed(f"{name} has dtype {dtype[:20]} instead of one of {', '.join(DTYPES)}")
    if len(shape) > MAX_DIMENSIONS:
        raise Malformed(f"{name} has {len(shape)} dimensions; at most {MAX_DIMENSIONS} are accepted")
    fits = all(0 <= length <= MAX_LENGTH for length in shape)
    if not fits or len(data) != math.prod(shape) * DTYPES[dtype].itemsize:
        raise Malformed(f"{name} has {len(data)} bytes, which do not fit its shape {tuple(shape)}")
    return torch.from_numpy(np.frombuffer(data, DTYPES[dtype]).astype(dtype).reshape(tuple(shape)))


def printable(text: object, most: int = MAX_TEXT) -> str:
    """Text from the other side as it may be shown and stored: one line in which control characters, terminal escapes
    and lone surrogates are written as escapes. A lone surrogate would make printing or storing the text fail.

    >>> printable("a\\x1b[2J\\nb")
    'a\\\\x1b[2J\\\\nb'
    """
    kept = str(text)[:most]
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in kept)


def reason(error: Exception) -> str:
    """An error in reading the other side's message, as a printable sentence."""
    return printable(error if isinstance(error, Malformed) else f"{type(error).__name__}: {error}")


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
