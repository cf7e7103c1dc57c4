"""One grammar for everything a person types: methods, partitions, noise, faults, selection, models.

    name(value, key=value)       a value: number, list, "quoted", bare word, true, false, none, or another name(…)
    name+name@name               a method: names joined by +, a weighting asked for by @
    package:name(key=value)      a name of the user's own code, wherever a name may stand

`parse` reads it, `build` makes the thing it names, `spell` writes a thing back so that build(parse(spell(x))) == x.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from undrift.core.errors import BadRequest, unknown
from undrift.core.references import answer, resolve
from undrift.core.words import clipped, shown

TOKEN = re.compile(
    r"""\s*(?:(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.-]))
        |(?P<word>[A-Za-z_][\w.-]*(?::[A-Za-z_]\w*)?)|(?P<quoted>"[^"]*"|'[^']*')|(?P<mark>[(),=\[\]+@]))""",
    re.VERBOSE,
)
DEEPEST, LONGEST_NUMBER = 20, 30
WORDS: dict[str, Any] = {"true": True, "false": False, "none": None, "nan": math.nan, "inf": math.inf}


@dataclass(frozen=True)
class Call:
    """`name(args, key=value)`, not yet given a meaning."""

    name: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


class Reader:
    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.at, self.depth = text, list[tuple[str, str]](), 0, 0
        place = 0
        while place < len(text.rstrip()):
            match = TOKEN.match(text, place)
            if match is None:
                raise BadRequest(
                    f"cannot read {shown(text)} at {text[place:].strip()[:12]!r}; write name(value, key=value)"
                )
            self.tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
            place = match.end()

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        found = self.peek()
        if wanted and found not in wanted:
            where = shown(found) if found else "the end"
            raise BadRequest(
                f"in {shown(self.text)}: expected {' or '.join(wanted)} before {where}; are the brackets balanced?"
            )
        self.at += 1
        return found

    def call(self) -> Call:
        kind, name = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if kind != "word":
            where = shown(name) if name else "the end"
            raise BadRequest(f"in {shown(self.text)}: expected a name before {where}; write name(value, key=value)")
        self.at += 1
        args: list[Any] = []
        options: dict[str, Any] = {}
        if self.peek() == "(":
            self.take("(")
            while self.peek() != ")":
                if (
                    self.at + 1 < len(self.tokens)
                    and self.tokens[self.at][0] == "word"
                    and self.tokens[self.at + 1][1] == "="
                ):
                    key = self.take()
                    self.take("=")
                    if key in options:
                        raise BadRequest(f"in {shown(self.text)}: {key} is given twice; give it once")
                    options[key] = self.value()
                elif options:
                    raise BadRequest(
                        f"in {shown(self.text)}: a value without a name stands behind {list(options)[-1]}=…; write it first"
                    )
                else:
                    args.append(self.value())
                if self.peek() != ")":
                    self.take(",", ")")
            self.take(")")
        return Call(name, tuple(args), options)

    def value(self) -> Any:
        """A value; brackets may be nested `DEEPEST` times."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise BadRequest(f"in {shown(self.text)}: brackets are nested more than {DEEPEST} deep; write it flat")
        value = self.one_value()
        self.depth -= 1
        return value

    def one_value(self) -> Any:
        kind, token = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if kind == "number":
            self.at += 1
            if len(token) > LONGEST_NUMBER:
                raise BadRequest(f"in {shown(self.text)}: {clipped(token, 20)} is too long a number; write it as 1e30")
            return int(token) if re.fullmatch(r"[+-]?\d+", token) else float(token)
        if kind == "quoted":
            self.at += 1
            return token[1:-1]
        if token == "[":
            self.take("[")
            items = []
            while self.peek() != "]":
                items.append(self.value())
                if self.peek() != "]":
                    self.take(",", "]")
            self.take("]")
            return tuple(items)
        if kind == "word":
            call = self.call()
            if self.tokens[self.at - 1][1] == ")":
                return call
            return WORDS.get(call.name.lower(), call.name)
        where = shown(token) if token else "the end"
        raise BadRequest(f"in {shown(self.text)}: expected a value before {where}; are the brackets balanced?")

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise BadRequest(f"in {shown(self.text)}: {shown(self.peek())} is too much; are the brackets balanced?")


def parse(text: str) -> Call:
    reader = Reader(text)
    call = reader.call()
    reader.end()
    return call


def parse_method(text: str) -> list[tuple[str, Call]]:
    """[("+" or "@", call), …] of a method's text."""
    reader = Reader(text)
    terms = [("+", reader.call())]
    while reader.peek() in ("+", "@"):
        terms.append((reader.take(), reader.call()))
    reader.end()
    return terms


def parse_list(text: str) -> list[Call]:
    """`name(…), name(…)`."""
    reader = Reader(text)
    calls = [reader.call()]
    while reader.peek() == ",":
        reader.take(",")
        calls.append(reader.call())
    reader.end()
    return calls


def build(what: str, call: Call | str, known: Mapping[str, Callable[..., Any]]) -> Any:
    """Make what a call names, out of a table of factories or the user's own code; its parameters are checked against their
    annotations."""
    if isinstance(call, str):
        call = parse(call)
    if ":" not in call.name and call.name not in known:
        raise unknown(what, call.name, known)
    factory = resolve(call.name, what) if ":" in call.name else known[call.name]
    if not callable(factory) and not call.args and not call.options:
        return factory  # an object of the user's own

    def meant(value: Any) -> Any:
        if isinstance(value, Call):
            return build(what, value, known)
        return tuple(meant(item) for item in value) if isinstance(value, tuple) else value

    args = [meant(value) for value in call.args]
    options = {key: meant(value) for key, value in call.options.items()}
    signature = signature_of(call.name, factory, options)
    try:
        bound = signature.bind(*args, **options)
    except TypeError as error:
        takes = ", ".join(signature.parameters)
        raise BadRequest(f"{call.name}({takes}): {error}; give what it needs, and no more") from None
    hints = hints_of(factory)
    for key, value in bound.arguments.items():
        variadic = signature.parameters[key].kind is inspect.Parameter.VAR_POSITIONAL
        for item in value if variadic else (value,):
            if key in hints and not fits(item, hints[key]):
                raise BadRequest(f"{call.name}: {key} must be {wording(hints[key])}, not {spell(item)}")
    if ":" not in call.name:
        try:
            return factory(*bound.args, **bound.kwargs)
        except BadRequest as wrong:  # by a part of another name: fedavgm(2) is refused by momentum
            if call.name in str(wrong):
                raise
            raise BadRequest(f"{call.name}: {wrong}") from None
    return answer(
        what, functools.partial(factory, *bound.args, **bound.kwargs), lambda made: made is not None, f"a {what}"
    )


def signature_of(name: str, factory: Any, options: Mapping[str, Any]) -> inspect.Signature:
    """The parameters of what a name stands for; refused if an option is not one of them."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        raise BadRequest(
            f"{name} must take parameters that can be named, and a {type(factory).__name__} has none; write a function around it"
        ) from None
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
    for key in () if open_ended else options:
        if key not in signature.parameters:
            raise (
                unknown(f"parameter of {name}", key, signature.parameters)
                if signature.parameters
                else BadRequest(f"{name} takes no parameter, and {key} was given; leave it out")
            )
    return signature


def hints_of(factory: Any) -> dict[str, Any]:
    """The types of its parameters; of the user's own code only those that Python can resolve."""
    try:
        return typing.get_type_hints(factory.__init__ if isinstance(factory, type) else factory)  # type: ignore[misc]
    except Exception:  # a name that exists only for type checkers, an object without annotations
        return {}


def several(what: str, given: Any, known: Mapping[str, Callable[..., Any]]) -> list[Any]:
    """`a(…)+b(…)`, one thing, a list of things, or None: always the list of what they name."""
    if isinstance(given, str):
        terms = parse_method(given)
        if any(mark == "@" for mark, _ in terms):
            raise BadRequest(f"in {shown(given)}: @ asks for a method's weighting; join with +")
        return [build(what, call, known) for _, call in terms]
    if isinstance(given, (list, tuple)):
        return [one for item in given for one in several(what, item, known)]
    return [] if given is None else [given]


def fits(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if hint is Any or hint is inspect.Parameter.empty:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, option) for option in typing.get_args(hint))
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin in (tuple, list, Sequence) or hint in (tuple, list):
        return isinstance(value, (tuple, list))
    if hint is None or hint is type(None):
        return value is None
    plain = origin or hint
    return not isinstance(plain, type) or isinstance(value, plain)


def wording(hint: Any) -> str:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(wording(option) for option in typing.get_args(hint))
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(str(option) for option in typing.get_args(hint))
    plain = typing.get_origin(hint) or hint
    names = {
        float: "a number",
        int: "a whole number",
        str: "a word",
        bool: "true or false",
        tuple: "a list",
        list: "a list",
    }
    return "none" if plain in (None, type(None)) else names.get(plain, getattr(plain, "__name__", str(plain)))


def spell(value: Any) -> str:
    """A value, a part, a partition … as the text that makes it again."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return value if re.fullmatch(r"[A-Za-z_][\w.-]*", value) and value.lower() not in WORDS else f'"{value}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(spell(item) for item in value)}]"
    if isinstance(value, Call):
        inside = [spell(item) for item in value.args] + [f"{k}={spell(v)}" for k, v in value.options.items()]
        return f"{value.name}({', '.join(inside)})" if inside else value.name
    if dataclasses.is_dataclass(value):
        fields = [f"{f.name}={spell(getattr(value, f.name))}" for f in dataclasses.fields(value) if f.init]
        name = getattr(value, "name", None) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(value).__name__).lower()
        return f"{name}({', '.join(fields)})"
    raise BadRequest(f"{type(value).__name__} cannot be written as text; use numbers, texts and lists of them")
