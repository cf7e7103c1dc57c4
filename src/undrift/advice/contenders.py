"""From a shortlist to the contenders of a race: methods at some rates and some values of their main parameter, and the
compositions of those who do well.

Plain averaging is tried at three rates first. The others race at the two that suit it best: on the federations of
`benchmarks/advisor.py` the third one never led to another answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from undrift.advice.heats import PLAIN, Contender
from undrift.advice.shortlist import Candidate
from undrift.contract.compose import PREFERRED
from undrift.contract.parts import axes_of
from undrift.core.errors import BadRequest
from undrift.core.text import parse_method, spell
from undrift.methods.describe import describe
from undrift.methods.naming import method, method_pieces
from undrift.study.grid import parameters_of

FACTORS = (0.25, 1.0, 4.0)  # of the rate that the user gave, or the default
RATES = 2  # of these, for methods other than plain averaging: those that suit it best


def plain_contenders(candidates: Sequence[Candidate], lr: float) -> list[Contender]:
    """Plain averaging at every rate."""
    return [
        Contender(one.method, lr * factor, one.method, one.axis, one.reason, one.evidence)
        for one in candidates
        for factor in FACTORS
        if one.method == PLAIN
    ]


def other_contenders(candidates: Sequence[Candidate], rates: Sequence[float]) -> list[Contender]:
    """Every other candidate at these rates, the best one first, and at the best one with the other values of its parameter."""
    found = []
    for one in candidates:
        points = [(one.method, rate) for rate in rates] + [(text, rates[0]) for text in texts(one)]
        found += [Contender(text, rate, one.method, one.axis, one.reason, one.evidence) for text, rate in points]
    return [one for one in dict.fromkeys(found) if not one.plain]


def best_rates(plain: Sequence[Contender], scores: Mapping[Contender, Sequence[float]]) -> list[float]:
    """The rates that suit plain averaging best, from its runs on the first seed."""
    return [one.lr for one in sorted(plain, key=lambda one: -scores[one][0])][:RATES]


def texts(candidate: Candidate) -> list[str]:
    """A candidate with each value of its parameter. The default value is not spelled out."""
    terms = parse_method(candidate.method)
    named = candidate.parameter or ""
    place = next((n for n, (_, call) in enumerate(terms) if named in parameters_of(call)), None)
    if place is None:
        return [candidate.method]
    mark, call = terms[place]
    known = describe(call.name)["parameters"][named]
    return [
        candidate.method if spell(value) == known else
        joined([*terms[:place], (mark, replace(call, options={**call.options, named: value})), *terms[place + 1 :]])
        for value in candidate.values
    ]  # fmt: skip


def joined(terms: Sequence[tuple[str, Any]]) -> str:
    return "".join(mark + spell(call) for mark, call in terms).removeprefix("+")


def compositions(survivors: Sequence[Contender], most: int) -> list[Contender]:
    """Pairs of survivors that act on different axes, the best ones first. They take the rate of the better one."""
    found, known = list[Contender](), [method(one.method).parts for one in survivors]
    for one, other in itertools.combinations([c for c in survivors if not c.plain], 2):
        text = f"{one.method}+{other.method}"
        if axes(one.method) & axes(other.method):
            continue
        try:
            parts = method(text).parts
        except BadRequest:  # parts that exclude each other
            continue
        if parts not in known:  # scaffold prefers uniform weights: adding them changes nothing
            known.append(parts)
            reason = f"{one.method} and {other.method} act on different axes, and both did well"
            found.append(Contender(text, one.lr, text, "composition", reason, "this race"))
    return found[:most]


def axes(text: str) -> set[str]:
    """The axes of the parts that a method brings."""
    return {axis for piece in method_pieces(text) if piece.rank > PREFERRED for axis in axes_of(piece.part)}
