"""Names of parts and methods: from text and objects to a `Method`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from undrift.contract.compose import BROUGHT, NAMED, PREFERRED, Method, Ranked, join
from undrift.contract.parts import Part, Upload
from undrift.core.errors import BadRequest, unknown
from undrift.core.text import Call, build, parse_method
from undrift.methods import combine, objectives, personalize, private, sampling, server, upload, weighting
from undrift.methods.published import PUBLISHED

# The parts of single-place axes that a method does not name: FedAvg.
DEFAULTS = (weighting.size(), combine.mean(), server.replace())


def method(*pieces: Any, name: str | None = None, axes: Sequence[tuple[str, Any]] = ()) -> Method:
    """Join parts, published names (text) and methods into one method.

    >>> method("fedavg").name
    'fedavg'
    """
    if len(pieces) == 1 and isinstance(pieces[0], Method) and not axes:
        return pieces[0]
    ranked: list[Ranked] = []
    labels: list[str] = []
    for piece in pieces:
        if isinstance(piece, Method):
            ranked += [Ranked(NAMED if p.key in piece.chosen else PREFERRED, p, piece.name) for p in piece.parts]
            labels.append(piece.name)
        elif isinstance(piece, str):
            ranked += method_pieces(piece)
            labels.append("".join(piece.split()))
        elif isinstance(piece, Part):
            ranked.append(Ranked(NAMED, piece, piece.name))
            labels.append(piece.name)
        else:
            raise BadRequest(f"a method is made of parts and names, not of {type(piece).__name__}")
    for axis, part in axes:
        ranked.append(Ranked(NAMED, part, part.name))
        labels.append(f"{axis}.{part.name}")
    fixed = any(isinstance(one.part, Upload) and one.part.fixes_weights for one in ranked)
    return join(
        ranked, name or "+".join(labels) or "fedavg", (weighting.uniform(), *DEFAULTS[1:]) if fixed else DEFAULTS
    )


def part_tables() -> dict[str, dict[str, Callable[..., Any]]]:
    """axis -> name -> part class."""
    modules: dict[str, Any] = {
        "sampling": sampling,
        "objective": objectives,
        "personalize": personalize,
        "weighting": weighting,
        "combine": combine,
        "server": server,
        "private": private,
        "upload": upload,
    }
    return {axis: {name: getattr(module, name) for name in module.__all__} for axis, module in modules.items()}


def part(axis: str, text: str | Call) -> Any:
    """The part of an axis that a text names: --weighting "bound(radius=0.1)"."""
    return build(axis, text, part_tables()[axis])


def method_pieces(text: str) -> list[Ranked]:
    """Everything that a method's text names."""
    tables = part_tables()
    pieces: list[Ranked] = []
    for mark, call in parse_method(text):
        axis, _, short = call.name.partition(".")
        if mark == "@":
            pieces.append(Ranked(NAMED, build("weighting", call, tables["weighting"]), call.name))
        elif axis in tables and short:
            named = build(axis, dataclasses.replace(call, name=short), tables[axis])
            pieces.append(Ranked(NAMED, named, call.name))
        elif call.name in PUBLISHED:
            bundle = build("method", call, {call.name: PUBLISHED[call.name].factory})
            pieces += [Ranked(BROUGHT, piece, call.name) for piece in bundle.brings]
            pieces += [Ranked(PREFERRED, piece, call.name) for piece in bundle.prefers]
        else:
            axes = [axis for axis, table in tables.items() if call.name in table]
            if not axes:
                raise unknown("method", call.name, {*PUBLISHED, *(n for table in tables.values() for n in table)})
            if len(axes) > 1:
                raise BadRequest(
                    f"{call.name} is on several axes; write {' or '.join(f'{axis}.{call.name}' for axis in axes)}"
                )
            pieces.append(Ranked(NAMED, build(axes[0], call, tables[axes[0]]), call.name))
    return pieces
