"""The options of a run as options of a command. Values arrive as text and are converted here, so that errors are our
own sentences."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TextIO

import typer

from undrift.core.errors import BadRequest
from undrift.core.schema import checked, from_text, plain
from undrift.experiment.options import FIELDS, HINTS


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


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


def read(given: dict[str, Any]) -> dict[str, Any]:
    """Typed text -> values."""
    return {name: value if isinstance(value, bool) else read_one(name, value) for name, value in given.items()}


def read_one(name: str, value: str) -> Any:
    return from_text(flag(name), HINTS[name], value)


def read_as(kind: Any, name: str, value: str | None) -> Any:
    """An option that is no option of a run, typed as `name`, as a value of its type (None: it was not typed)."""
    if value is None:
        return None
    return checked(kind, flag(name), from_text(flag(name), kind, value))


def open_log(log: str | None) -> TextIO | None:
    """The file of `--log`, to append to. Whoever asks closes it."""
    if log is None:
        return None
    try:
        return open(log, "a", encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"--log {log!r} cannot be written: {error.strerror or error}; choose another file") from None
