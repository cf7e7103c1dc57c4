"""The options of a run as options of a command. Values arrive as text and are converted here, so that errors are our
own sentences."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import typer

from undrift.core.errors import BadRequest
from undrift.experiment.options import FIELDS, HINTS


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


OTHERS = ("--json", "--quiet", "--log", "--seeds", "--repeat", "--grid", "--rank-by", "--resume", "--help")
known_options = [*map(flag, FIELDS), *OTHERS]


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command every option of a run. It receives those that were typed as the keyword `given`."""

    def command(**values: Any) -> Any:
        given = {name: values.pop(name) for name in FIELDS}
        return function(given=read({name: v for name, v in given.items() if v is not None}), **values)

    own = [p for p in inspect.signature(function).parameters.values() if p.name != "given"]
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    parameters, annotations = list(own), {p.name: p.annotation for p in own}
    for name, field in FIELDS.items():
        boolean = HINTS[name] is bool
        kind: Any = bool if boolean else str
        default = field.default
        shown = "" if default is None or boolean or "[" in field.metadata["help"] else f" [{plain(default)}]"
        option = typer.Option(
            None,
            flag(name),
            help=field.metadata["help"] + shown,
            show_default=False,
            metavar=None if boolean else "VALUE",
        )
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind | None)
        )
        annotations[name] = kind | None
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = annotations
    return command


def plain(value: Any) -> str:
    return ",".join(f"{v:g}" for v in value) if isinstance(value, tuple) else str(value)


def read(given: dict[str, Any]) -> dict[str, Any]:
    """Typed text -> values."""
    return {name: value if isinstance(value, bool) else read_one(name, value) for name, value in given.items()}


def read_one(name: str, value: str) -> Any:
    hint = str(HINTS[name])
    if name == "cohort":
        if re.fullmatch(r"[+-]?\d+", value):
            return int(value)
        return number(name, value)
    if HINTS[name] is int or hint == "int | None":
        if not re.fullmatch(r"[+-]?\d+", value.strip()):
            raise BadRequest(f"{flag(name)} must be a whole number, not {value!r}")
        return int(value)
    return number(name, value) if HINTS[name] is float or hint == "float | None" else value


def number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise BadRequest(f"{flag(name)} must be a number, not {value!r}") from None
