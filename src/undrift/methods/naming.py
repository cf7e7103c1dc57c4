"""Names of parts and methods: from text and objects to a `Method`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from undrift.contract.compose import BROUGHT, NAMED, PREFERRED, Bundle, Method, Ranked, join
from undrift.contract.parts import Part, Upload, axes_of
from undrift.core.errors import BadRequest, unknown
from undrift.core.text import Call, build, parse, parse_method
from undrift.core.user_code import address
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
        if not isinstance(piece, (str, Method, Part)):
            raise BadRequest(
                f"a method is made of parts and names such as fedavg, not of {type(piece).__name__}; name one"
            )
        label = "".join(piece.split()) if isinstance(piece, str) else piece.name
        ranked += pieces_of(piece, label)
        labels.append(label)
    for axis, part in axes:
        ranked.append(Ranked(NAMED, part, part.name))
        shipped = part_tables()[axis].get(part.name) is type(part)
        labels.append(f"{axis}.{part.name if shipped else address(type(part)) or part.name}")
    fixed = any(isinstance(one.part, Upload) and one.part.fixes_weights for one in ranked)
    defaults = (weighting.uniform(), *DEFAULTS[1:]) if fixed else DEFAULTS
    return join(ranked, name or "+".join(labels) or "fedavg", defaults)


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
    call = parse(text) if isinstance(text, str) else text
    return belonging(axis, call.name, build(axis, call, part_tables()[axis]))


def belonging(axis: str, name: str, found: Any) -> Any:
    """What a name gave, if it is a part of the axis."""
    if axis not in (axes_of(found) if isinstance(found, Part) else ()):
        what = f"the {found.axis} part {found.name}" if isinstance(found, Part) else type(found).__name__
        known = ", ".join(sorted(part_tables()[axis])[:3])
        raise BadRequest(f"{name} gives {what}, and a part of the axis {axis} belongs here; name one, such as {known}")
    return found


def method_pieces(text: str) -> list[Ranked]:
    """Everything that a method's text names."""
    tables = part_tables()
    pieces: list[Ranked] = []
    for mark, call in parse_method(text):
        axis, _, short = call.name.partition(".")
        if mark == "@":
            pieces.append(Ranked(NAMED, part("weighting", call), call.name))
        elif axis in tables and short:
            pieces.append(Ranked(NAMED, part(axis, dataclasses.replace(call, name=short)), call.name))
        elif ":" in call.name:
            pieces += pieces_of(build("method", call, {}), call.name)
        elif call.name in PUBLISHED:
            pieces += pieces_of(build("method", call, {call.name: PUBLISHED[call.name].factory}), call.name)
        else:
            axes = [axis for axis, table in tables.items() if call.name in table]
            if not axes:
                raise unknown("method", call.name, {*PUBLISHED, *(n for table in tables.values() for n in table)})
            if len(axes) > 1:
                raise BadRequest(
                    f"{call.name} is on several axes; write {' or '.join(f'{axis}.{call.name}' for axis in axes)}"
                )
            pieces.append(Ranked(NAMED, part(axes[0], call), call.name))
    return pieces


def pieces_of(found: Any, origin: str) -> list[Ranked]:
    """What a name stands for, as ranked parts: a part, a method, a published bundle, a text, or a list of these."""
    if isinstance(found, Part):
        return [Ranked(NAMED, found, origin)]
    if isinstance(found, Bundle):
        brought = [Ranked(BROUGHT, piece, origin) for piece in found.brings]
        return brought + [Ranked(PREFERRED, piece, origin) for piece in found.prefers]
    if isinstance(found, Method):
        return [Ranked(NAMED if piece.key in found.chosen else PREFERRED, piece, origin) for piece in found.parts]
    if isinstance(found, str):
        return method_pieces(found)
    if isinstance(found, (list, tuple)):
        return [piece for one in found for piece in pieces_of(one, origin)]
    raise BadRequest(f"{origin} gives {type(found).__name__}; it must give a part, a method, a text or a list of these")
