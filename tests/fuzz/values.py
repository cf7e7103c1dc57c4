"""What strange people and strange programs type: the material that the generators draw from."""

from __future__ import annotations

import random

from undrift.evaluate import diagnose
from undrift.federation import partition
from undrift.federation.environment import augment, domains, faults, noise
from undrift.methods.naming import part_tables
from undrift.methods.published import PUBLISHED
from undrift.models import MODELS

LONG = "9" * 5000
STRANGE = (
    "", " ", "0", "-1", "1", "3", "0.5", "1.0", "-0.5", "1e-320", "1e308", "1e999", "nan", "inf", "-inf", "1e", "0x10", "1_0",
    "²", "٣", LONG, "10000000000000000000000", "true", "none", "None", "a", "a b", "ü", "λ", "\udcff", "(", ")", "[]", "[[", "[1",
    "a(b", "a()", "a(1)", "a(b=1)", "[" * 1000, "a(" * 1000 + ")" * 1000, ":", ".x:y", "x:", "json:dumps", "os:environ",
    "builtins:dict", "builtins:print", "json:nothing", "nowhere:x", "a:b:c", "json.decoder:JSONDecoder", "../x", "/proc/x", "~",
    "#", "?", "%", "%s", "{}", "{0}", "\n", "\t", "--", "-", "@", "+", "a+b", "a@b", "object:x", "'", '"', "\\", "1,2", ",", "1,,2",
    "=", "a=b", "x" * 300, "fedavg", "digits", "all", "cohort",
)  # fmt: skip
NUMBERS = ("0", "1", "2", "3", "0.1", "0.5", "1.0", "-1", "1e-320", "1e308", "1e30", "nan", "inf", "true", "none", "word", "²",
           '"text"', "[1, 2]", "[]", "[true]", "10000000000000000000000", LONG, "x(1)", "[[1]]")  # fmt: skip
NAMES = {
    "partition": partition.__all__, "noise": noise.__all__, "faults": faults.__all__, "domains": domains.__all__,
    "augment": augment.__all__, "selection": ("uniform", "all", "probability", "list"), "model": tuple(MODELS),
    "method": tuple(PUBLISHED), "diagnose": tuple(diagnose.NAMES),
    **{axis: tuple(table) for axis, table in part_tables().items()},
}  # fmt: skip
HEAVY = {
    "resnet8",
    "resnet8-thin",
    "resnet18",
    "resnet20",
    "resnet50",
    "mobilenetv2",
    "vgg9",
    "slow",
}  # minutes, not faults


def call(draw: random.Random, what: str) -> str:
    """`name(values)` of a kind of thing, with values that may or may not fit."""
    name = draw.choice([name for name in NAMES[what] if name not in HEAVY])
    shape = draw.random()
    if shape < 0.25:
        return name
    inside = [draw.choice(NUMBERS) for _ in range(draw.randint(0, 3))]
    if shape > 0.7 and inside:
        inside[-1] = f"{draw.choice(('mu', 'p', 'K', 'T', 'beta', 'alpha', 'least', 'cohort', 'foo'))}={inside[-1]}"
    return f"{name}({', '.join(inside)})"


def mangled(draw: random.Random, text: str) -> str:
    """The text with one character removed, doubled or replaced."""
    if not text:
        return draw.choice("()[]+@:,")
    at = draw.randrange(len(text))
    return text[:at] + draw.choice(("", text[at] * 2, *"()[]+@:,=²")) + text[at + 1 :]
