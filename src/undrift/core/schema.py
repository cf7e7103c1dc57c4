"""One schema for options and files: a dataclass says names, types, ranges and defaults, and the rest follows from it.

    rounds: Count = 50                              a whole number of at least 1
    lr: Annotated[float, Gt(0)] = 0.05              a finite number above 0
    optimizer: Literal["sgd", "adam"] = "sgd"       one of these words

pydantic does the checking. It is strict (`true` is no number, `"3"` is no number), and its first error becomes our own
sentence: the name, what the value must be, the value. It is imported when the first value is checked, so that
`undrift --help` does not wait for it. `from_text` reads what is typed; core/files.py reads files.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Len, Lt, MinLen

from undrift.core.errors import BadRequest, unknown
from undrift.core.words import bounds, shown

LARGEST = 10**9  # of anything that is counted: clients, rounds, samples in a batch
MACHINE = (LARGEST, 2**63, -(2**63))

Count = Annotated[int, Ge(1), Le(LARGEST)]
Positive = Annotated[float, Gt(0)]
Share = Annotated[float, Ge(0), Lt(1)]
Seed = Annotated[int, Ge(-(2**63)), Lt(2**63)]
Workers = Annotated[int, Ge(1), Le(4096)]
Seeds = Annotated[int, Ge(1), Le(10_000)]  # how many
Name = Annotated[str, MinLen(1)]


@dataclass(frozen=True)
class InFile:
    """With `Any`: in Python the value may be an object, in a file (and on the command line) it has this type."""

    kind: Any


Text = Annotated[Any, InFile(Name)]  # the text of an object, or the object
Texts = Annotated[Any, InFile(Name | list[Name])]  # or a list of them


# ---- checking ----------------------------------------------------------------------------------------------------


@functools.lru_cache(256)
def hints_of(kind: Any, in_file: bool = True) -> Mapping[str, Any]:
    """The types of a dataclass's fields by name. With `in_file`, of what a file can hold."""
    hints = typing.get_type_hints(kind, include_extras=True)
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    return types.MappingProxyType({name: file_type(hints[name]) if in_file else hints[name] for name in names})


def file_type(hint: Any) -> Any:
    """The type of a value in a file: `InFile` takes the place of `Any`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.Union[tuple(file_type(member) for member in typing.get_args(hint))]  # noqa: UP007
    if typing.get_origin(hint) is Annotated:
        return next((extra.kind for extra in typing.get_args(hint)[1:] if isinstance(extra, InFile)), hint)
    return hint


def table_type(kind: Any, in_file: bool = True) -> Any:
    """A dataclass as a table (TypedDict): fields without a default must be there."""
    from typing_extensions import TypedDict  # pydantic takes the standard library's only from Python 3.12 on

    fields = {field.name: field for field in dataclasses.fields(kind)}
    hints: dict[str, Any] = {}
    for name, hint in hints_of(kind, in_file).items():
        field = fields[name]
        given = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        hints[name] = typing.Required[hint] if given else typing.NotRequired[hint]
    make: Any = TypedDict
    table = make(kind.__name__, hints)
    table.__pydantic_config__ = {
        "strict": True, "extra": "forbid", "allow_inf_nan": False, "arbitrary_types_allowed": True,
    }  # fmt: skip
    return table


@functools.cache
def adapter(kind: Any, in_file: bool) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(table_type(kind, in_file))


def check(
    kind: Any, table: Any, where: str = "", *, in_file: bool = True, flags: bool = False, more: bool = False
) -> dict[str, Any]:
    """The values of a table, checked against the fields of a dataclass; refused in one sentence that begins with
    `where`. `flags` writes names as on the command line, `more` allows other keys (and keeps them)."""
    from pydantic import ValidationError

    if not isinstance(table, Mapping):
        raise BadRequest(f"{where} must be a table of names and values, not {shown(table)}".strip())
    hints = hints_of(kind, in_file)
    values = {key: python_number(value) for key, value in table.items()}
    asked = {key: value for key, value in values.items() if not more or key in hints}
    try:
        found: dict[str, Any] = adapter(kind, in_file).validate_python(asked)
    except ValidationError as error:
        raise refusal(error.errors(include_url=False, include_context=False)[0], hints, asked, where, flags) from None
    except RecursionError:
        raise BadRequest(f"{where} is nested too deeply; write it flat".strip()) from None
    return {**values, **found}


def checked(hint: Any, name: str, value: Any) -> Any:
    """One value by itself, checked against its type; a sentence names it `name`."""
    key = name.lstrip("-").replace("-", "_")
    kind = dataclasses.make_dataclass("value", [(key, hint)])
    return check(kind, {key: value}, flags=name.startswith("--"))[key]


def refusal(
    error: Mapping[str, Any], hints: Mapping[str, Any], table: Mapping[str, Any], where: str, flags: bool
) -> BadRequest:
    """Our sentence for the first of pydantic's errors."""
    path, hint, value = located(error["loc"], hints, table)
    name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
    shown_name = "--" + name.replace("_", "-") if flags else name
    before = f"{where}: " if where else ""
    if error["type"] == "extra_forbidden":
        what = "option" if flags or not where else f"key of {where}"
        return unknown(what, str(error["loc"][-1]), hints)
    if error["type"] == "missing":
        return BadRequest(f"{before}{error['loc'][-1]} is missing; it must be {wording(hint)}")
    if isinstance(value, str) and not value:
        return BadRequest(f"{before}{shown_name} is empty; give a value, or leave it out")
    must = wording(hint, machine=type(value) is int and abs(value) > LARGEST)
    if isinstance(value, float) and not math.isfinite(value):
        must = must.replace("a number", "a finite number", 1)
    near = difflib.get_close_matches(value, allowed_words(hint), n=1) if isinstance(value, str) else []
    hint_text = f"; did you mean {near[0]}?" if near else ""
    return BadRequest(f"{before}{shown_name} must be {must}, not {shown(value)}{hint_text}")


def located(loc: Sequence[Any], hints: Mapping[str, Any], table: Any) -> tuple[list[Any], Any, Any]:
    """(path, type, value) of an error. Its path ends where pydantic's goes on into the members of a union."""
    path: list[Any] = []
    hint: Any = hints
    value: Any = table
    for step in loc:
        inside = without_extras(
            members(hint)[0] if len(members(hint)) == 1 else hint
        )  # a list that may be None is a list
        origin = typing.get_origin(inside) or inside
        if isinstance(inside, Mapping) and step in inside:
            hint = inside[step]
        elif isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
            hint = (*typing.get_args(inside), Any, Any)[1]
        elif isinstance(step, int) and isinstance(value, (list, tuple)) and typing.get_args(inside):
            arguments = typing.get_args(inside)
            hint = (
                arguments[min(step, len(arguments) - 1)] if origin is tuple and ... not in arguments else arguments[0]
            )
        else:
            break
        path.append(step)
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            break
    return path, hint, value


def python_number(value: Any) -> Any:
    """A number of numpy as Python's own: it is one and the same number to whoever gives it."""
    kind = type(value)
    return value.item() if kind.__module__ == "numpy" and getattr(value, "shape", None) == () else value


def without_extras(hint: Any) -> Any:
    if typing.get_origin(hint) in (Annotated, typing.Required, typing.NotRequired):
        return without_extras(typing.get_args(hint)[0])
    return hint


def members(hint: Any) -> list[Any]:
    """The members of a union without None; of any other type the type itself."""
    inside = without_extras(hint)
    if typing.get_origin(inside) in (typing.Union, types.UnionType):
        return [member for member in typing.get_args(inside) if member is not type(None)]
    return [hint]


def allowed_words(hint: Any) -> list[str]:
    literals = [without_extras(member) for member in members(hint)]
    return [str(word) for one in literals if typing.get_origin(one) is Literal for word in typing.get_args(one)]


WORDS = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}


def wording(hint: Any, machine: bool = False) -> str:
    """What a value must be, in words. `machine`: with the limits that only keep numbers small enough for the machine.

    >>> wording(Count), wording(Share), wording(Literal["sgd", "adam"] | None)
    ('a whole number of at least 1', 'a number of at least 0 and below 1', 'sgd or adam')
    """
    if typing.get_origin(hint) in (typing.Required, typing.NotRequired):
        return wording(typing.get_args(hint)[0], machine)
    if typing.get_origin(hint) is Annotated:
        inside, *extras = typing.get_args(hint)
        limits = bounds(**{
            key: getattr(extra, name)
            for extra in extras
            for kind, name, key in ((Ge, "ge", "least"), (Gt, "gt", "above"), (Le, "le", "most"), (Lt, "lt", "below"))
            if isinstance(extra, kind) and (machine or getattr(extra, name) not in MACHINE)
        })  # fmt: skip
        of = " of" if limits.startswith("at ") else ""
        least = next((extra.min_length for extra in extras if isinstance(extra, (Len, MinLen))), 0)
        size = f", at least {least} of them" if least and inside is not str else ""
        return f"{wording(inside, machine)}{of} {limits}".strip() + size
    if len(members(hint)) > 1 or members(hint) != [hint]:
        return " or ".join(dict.fromkeys(wording(member, machine) for member in members(hint)))
    if words := allowed_words(hint):
        return " or ".join(words)
    origin = typing.get_origin(hint) or hint
    if isinstance(origin, type) and origin not in WORDS:
        if issubclass(origin, Mapping) or dataclasses.is_dataclass(origin):
            return "a table"
        if issubclass(origin, Sequence):
            inside = next(iter(typing.get_args(hint)), Any)
            return "a list" if inside is Any else f"a list, each {wording(inside)}"
    return WORDS.get(origin, "a value")


# ---- text --------------------------------------------------------------------------------------------------------


def from_text(name: str, hint: Any, text: str) -> Any:
    """What is typed for an option, as a value of its type. Its range is checked with all others."""
    kinds = [typing.get_origin(without_extras(member)) or without_extras(member) for member in members(hint)]
    if not text.strip():
        raise BadRequest(f"{name} is empty; give a value, or leave it out")
    if int in kinds and re.fullmatch(r"\s*[+-]?[0-9]+\s*", text):
        if len(text) > 30:
            raise BadRequest(f"{name} must be {wording(hint)}, not a number of {len(text.strip())} digits")
        return int(text)
    if float in kinds:
        return number(name, hint, text)
    if int in kinds and not any(kind in (str, Literal) for kind in kinds):
        raise BadRequest(f"{name} must be {wording(hint)}, not {shown(text)}")
    if any(kind in (tuple, list, Sequence) for kind in kinds) and str not in kinds:
        whole = any(int in map(without_extras, typing.get_args(without_extras(member))) for member in members(hint))
        return [
            int(item) if whole and re.fullmatch(r"\s*[0-9]{1,30}\s*", item) else number(name, hint, item)
            for item in text.split(",")
        ]
    return text


def number(name: str, hint: Any, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadRequest(f"{name} must be {wording(hint)}, not {shown(text)}") from None


def setting(default: Any, help: str) -> Any:
    """A field of a schema with its meaning, for help texts and docs. `...`: it must be given."""
    if isinstance(default, (dict, list)):
        return dataclasses.field(default_factory=type(default), metadata={"help": help})
    if default is ...:
        return dataclasses.field(metadata={"help": help})
    return dataclasses.field(default=default, metadata={"help": help})


def plain(value: Any) -> str:
    """A default as help texts and docs show it."""
    if isinstance(value, bool):
        return str(value).lower()
    words = [v if isinstance(v, str) else f"{v:g}" for v in value] if isinstance(value, tuple) else [str(value)]
    return ",".join(words)
