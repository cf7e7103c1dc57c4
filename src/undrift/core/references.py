"""A user's own function, named `package:function` or given as an object: find it, and check what it gives back."""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable
from typing import Any

from undrift.core.errors import BadRequest, unknown
from undrift.core.words import clipped, shown

NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"


def resolve(text: str, what: str) -> Any:
    """What `package:name` stands for, in files of the working directory too. `what` it is for is named in a refusal."""
    package, _, function = text.strip().partition(":")
    if not re.fullmatch(NAME, package) or not re.fullmatch(NAME, function):
        raise BadRequest(f"the {what} {shown(text)} is no function; write package:function, as in my_file:my_{what}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(package)
    except (Exception, SystemExit) as error:  # a user's file may raise anything, and even exit
        raise BadRequest(
            f"the {what} {shown(text)} cannot be imported: {reason(error)}; its file must be in this folder, or installed"
        ) from None
    for name in function.split("."):
        if not hasattr(found, name):
            raise unknown(f"function of {package}", name, [n for n in dir(found) if not n.startswith("_")])
        found = getattr(found, name)
    return found


def answer(
    what: str, function: Callable[..., Any], good: Callable[[Any], bool], must: str, *arguments: Any, call: Any = None
) -> Any:
    """What a user's function returns for these arguments. Anything but what it `must` return is refused with its name;
    an error of its own stays attached, so that Python shows its traceback. `call(name, function, *arguments)` calls it
    in another way."""
    name = f"the {what} {name_of(function)}"
    if not callable(function):
        raise BadRequest(f"{name} is no function; it must be one that returns {must}")
    try:
        value = function(*arguments) if call is None else call(name, function, *arguments)
        fits = good(value)
    except BadRequest:
        raise
    except (Exception, SystemExit) as error:
        raise BadRequest(f"{name} must return {must}; it raised {reason(error)}") from error
    if not fits:
        raise BadRequest(f"{name} must return {must}; it returned {described(value)}")
    return value


def described(value: Any) -> str:
    """The type of a value, with its shape where it has one."""
    shape = getattr(value, "shape", None)
    kind = "nothing" if value is None else f"a {type(value).__name__}"
    return f"{kind} of shape {tuple(shape)}" if isinstance(shape, tuple) else kind


def reason(error: BaseException) -> str:
    """An error on one line: its type, and what it says."""
    return clipped(f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": "), 200)


def name_of(function: Any) -> str:
    """The name of a function (with options: of the function that gets them); of other objects their class."""
    own = getattr(function, "__name__", None)
    if own is None and isinstance(function, functools.partial):
        return name_of(function.func)
    return str(own or type(function).__name__)
