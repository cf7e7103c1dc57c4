"""A part's parameters are declared once, with its fields; everything else is derived from the declaration.

    q: Annotated[float, Range(least=0, most=1)] = 0.7
    schedule: Literal["cosine", "linear"] = "cosine"

`Part` checks every field against its annotation when a part is made: types, allowed words, ranges. The text grammar and
the signatures of published names read the same annotations.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from undrift.core.errors import BadRequest
from undrift.core.text import fits, spell, wording
from undrift.core.words import bounds, shown


@dataclass(frozen=True)
class Range:
    """Finite numbers from `least` (or above `above`) to `most` (or below `below`)."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def __contains__(self, value: float) -> bool:
        return math.isfinite(value) and self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        """
        >>> print(Range(least=0, most=1), Range(above=0), Range(least=0, below=0.5), sep="; ")
        between 0 and 1; above 0; at least 0 and below 0.5
        """
        return bounds(self.least, self.most, self.above, self.below)


@dataclass(frozen=True)
class Parameter:
    """A field of a part as it is declared."""

    name: str
    hint: Any  # its type, without the range
    range: Range | None
    default: Any  # dataclasses.MISSING where it must be given

    def check(self, part: str, value: Any) -> None:
        """Refuse a value of another type, a word that is not allowed, a number out of range."""
        if not fits(value, self.hint):
            raise BadRequest(f"{part}: {self.name} must be {wording(self.hint)}, not {self.shown(value)}")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise BadRequest(f"{part}: {self.name} must be below 2⁶³, not {shown(value)}")
        if self.range is not None and value is not None and value not in self.range:
            raise BadRequest(f"{part}: {self.name} must be {self.limits}, not {self.shown(value)}")

    @property
    def limits(self) -> str:
        """Its range in words."""
        return f"{self.range}, or none" if fits(None, self.hint) else str(self.range)

    @property
    def allowed(self) -> str:
        """What it may be, in words."""
        if self.range is None:
            return wording(self.hint)
        return f"{wording(self.hint).removesuffix(' or none')} {self.limits}"

    def shown(self, value: Any) -> str:
        try:
            return spell(value)
        except BadRequest:
            return repr(value)


@cache
def parameters(kind: Any) -> tuple[Parameter, ...]:
    """The parameters of a part (its class), in the order of its fields."""
    hints = typing.get_type_hints(kind, include_extras=True)
    found = []
    for field in dataclasses.fields(kind):
        if field.init:
            hint, limits = hints[field.name], None
            if typing.get_origin(hint) is Annotated:
                hint, *extras = typing.get_args(hint)
                limits = next((extra for extra in extras if isinstance(extra, Range)), None)
            found.append(Parameter(field.name, hint, limits, field.default))
    return tuple(found)


def check_parameters(part: Any) -> None:
    kind: Any = type(part)
    for parameter in parameters(kind):
        parameter.check(part.name, getattr(part, parameter.name))
