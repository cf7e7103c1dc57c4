"""How a reply is altered on its way to the server, in the header's text and in the arrays' bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from undrift.deploy.envelope import Envelope, Parcel, raw

NASTY = "\x1b[2J\r\nround 9: fine\u202e\ud800\x00"  # clears a terminal, forges a line, turns text, cannot be encoded
Change = Callable[[Envelope], Envelope | Parcel | str]


class Literal:
    """JSON as it is written, for numbers that Python would not write."""

    def __init__(self, text: str) -> None:
        self.text = text


BEYOND, DIGITS, HUGE = Literal("1e999"), Literal("7" * 5000), Literal("1" + 400 * "0")


def parcel_of(head: Any, arrays: dict[str, torch.Tensor], **more: Any) -> Parcel:
    literals: list[str] = []

    def marked(value: Any) -> str:
        literals.append(value.text)
        return f"literal {len(literals) - 1}"

    text = json.dumps(head, default=marked)
    for number, literal in enumerate(literals):
        text = text.replace(f'"literal {number}"', literal)
    sent = {name: (str(t.dtype).removeprefix("torch."), tuple(t.shape), raw(t)) for name, t in arrays.items()}
    return Parcel(text, {**sent, **more})


def entry(**fields: Any) -> Change:
    """Fields of the last reply replaced."""

    def change(reply: Envelope) -> Parcel:
        head = json.loads(reply.text)
        head["replies"][-1].update(fields)
        return parcel_of(head, reply.arrays)

    return change


def without(name: str) -> Change:
    def change(reply: Envelope) -> Parcel:
        head = json.loads(reply.text)
        del head["replies"][-1][name]
        return parcel_of(head, reply.arrays)

    return change


def message(part: str, **values: Any) -> Change:
    """Values of a part's message replaced; ... takes a value away."""

    def change(reply: Envelope) -> Parcel:
        head = json.loads(reply.text)
        sent = head["replies"][-1]["messages"][part]
        sent.update(values)
        head["replies"][-1]["messages"][part] = {name: value for name, value in sent.items() if value is not ...}
        kept = {name: t for name, t in reply.arrays.items() if ... not in values.values() or part not in name}
        return parcel_of(head, kept)

    return change


def header(**fields: Any) -> Change:
    return lambda reply: parcel_of({**reply.head, **fields}, reply.arrays)


def text(written: str) -> Change:
    return lambda reply: Parcel(written, parcel_of({}, reply.arrays).arrays)


def vector(dtype: str = "float32", shape: Callable[[int], tuple[int, ...]] = lambda n: (n,), name: str = "") -> Change:
    """The trained vector with another dtype, shape or name."""

    def change(reply: Envelope) -> Parcel:
        head = json.loads(reply.text)
        sent = parcel_of(head, reply.arrays)
        data, n = sent.arrays["train.vector"][2], len(reply.arrays["train.vector"])
        head["replies"][-1]["vector"] = name or "train.vector"
        arrays = {key: t for key, t in reply.arrays.items() if key != "train.vector"}
        return parcel_of(head, arrays, **{name or "train.vector": (dtype, shape(n), data)})

    return change


def extra(name: str, count: int, shape: tuple[int, ...] | None = None) -> Change:
    """One more array."""
    return lambda reply: parcel_of(reply.head, reply.arrays, **{name: ("float32", shape or (count,), bytes(4 * count))})


def nested(depth: int) -> Literal:
    return Literal("[" * depth + "]" * depth)


def failed(reply: Envelope, failure: Any) -> dict[str, Any]:
    common = {name: reply.head["replies"][-1][name] for name in ("work", "round", "seconds", "metrics")}
    return {**reply.head, "replies": [{**common, "failure": failure}]}


def longer(name: str, factor: float) -> Change:
    """One array multiplied: in bounds of the norm, which is relative to the model."""
    return lambda reply: parcel_of(reply.head, {**reply.arrays, name: factor * reply.arrays[name]})
