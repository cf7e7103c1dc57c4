"""A description of a published method or a part as one dict, made without running it.

`bench/catalogue.py` adds the costs, which are counted in a run.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from undrift.contract.compose import PREFERRED
from undrift.contract.parameters import parameters as declarations
from undrift.contract.parts import Part, axes_of, defines
from undrift.core.errors import unknown
from undrift.core.references import resolve
from undrift.core.text import parse_method, spell
from undrift.methods import evidence
from undrift.methods.naming import method_pieces, part_tables
from undrift.methods.published import PUBLISHED
from undrift.tasks import TASKS

# Parts with required parameters, and the values used to count their costs.
EXAMPLES = {"private.named": 'private.named("*bias")', "weighting.mix": "weighting.mix([size(), bound()], [0.5, 0.5])"}


def describe(name: str) -> dict[str, Any]:
    """Describe a published name, `axis.part`, a part's name alone, or `package:name` of your own."""
    if ":" in name:
        return describe_own(name)
    if name in PUBLISHED:
        entry = PUBLISHED[name]
        bundle = entry.factory()
        about = {
            "name": name,
            "what": entry.what,
            "paper": entry.paper,
            "parameters": parameters(entry.factory),
            "allowed": allowed(entry.brings, entry.fixed),
        }
        return about | facts(name, bundle.brings, bundle.prefers)
    tables = part_tables()
    axis, _, short = name.partition(".")
    matches = [(axis, short)] if short in tables.get(axis, {}) else [(a, name) for a in tables if name in tables[a]]
    if not matches:
        raise unknown("method", name, {*PUBLISHED, *(n for table in tables.values() for n in table)})
    axis, short = matches[0]
    full, kind = f"{axis}.{short}", tables[axis][short]
    example = EXAMPLES.get(full, full)
    about = {
        "name": full,
        "what": documentation(kind).splitlines()[0],
        "paper": "",
        "parameters": parameters(kind),
        "allowed": allowed([kind]),
    }
    return about | facts(example, [part for _, part, _ in method_pieces(example)], ())


def describe_own(name: str) -> dict[str, Any]:
    """Describe a method of the user's own. There are no laws and findings of ours about it."""
    pieces = method_pieces(name)
    brings = [piece.part for piece in pieces if piece.rank > PREFERRED]
    calls = [call for _, call in parse_method(name)]
    factory = (
        resolve(calls[0].name.removeprefix(f"{brings[0].axis}."), "method") if len(calls) == 1 and brings else None
    )
    what = (
        " ".join((inspect.getdoc(factory) or inspect.getdoc(type(brings[0])) or "").split("\n\n")[0].split())
        if brings
        else ""
    )
    about = {
        "name": name,
        "what": what or "your own method",
        "paper": "",
        "parameters": parameters(factory) if callable(factory) else {},
        "allowed": allowed(type(part) for part in brings),
    }
    found = about | facts(name, brings, [piece.part for piece in pieces if piece.rank == PREFERRED])
    return found | {"laws": [], "findings": []}


def facts(text: str, brings: Iterable[Part], prefers: Iterable[Part]) -> dict[str, Any]:
    brings = list(brings)
    keys = [part.key for part in brings] or list(evidence.PLAIN)
    return {
        "axes": sorted({axis for part in brings for axis in axes_of(part)}),
        "parts": [part.key for part in brings],
        "prefers": [part.key for part in prefers],
        "sends": [f"{n}: {kind}" for part in brings for n, kind in part.uplink.items()],
        "receives": [f"{n}: {kind}" for part in brings for n, kind in part.downlink.items()],
        "keeps_state": any(defines(part, "init_client") for part in brings),
        "needs_proxy": any("proxy" in part.needs for part in brings),
        "tasks": tasks_of(text, brings),
        "costs": None,
        "laws": sorted({evidence.laws(key) for key in keys}),
        "findings": [asdict(finding) for finding in evidence.findings(text)],
        "about": list(dict.fromkeys(documentation(type(part)) for part in brings)),
    }


def tasks_of(text: str, brings: Iterable[Part]) -> list[str]:
    """The shipped tasks that a published name was run on, or of other methods those that provide what they need."""
    if text in evidence.tasks():
        return [task for task, found in evidence.tasks()[text].items() if found.startswith("yes")]
    needs = {need for part in brings for need in part.needs} & {"labels", "class_logits", "errors"}
    return [name for name, make in TASKS.items() if needs <= set(make().provides)]


def parameters(factory: Any) -> dict[str, Any]:
    out = {}
    for name, parameter in inspect.signature(factory).parameters.items():
        try:
            out[name] = "required" if parameter.default is parameter.empty else spell(parameter.default)
        except Exception:
            out[name] = str(parameter.default)
    return out


def allowed(kinds: Iterable[Any], fixed: Iterable[str] = ()) -> dict[str, str]:
    """What each parameter of these parts may be, in words."""
    declared = [one for kind in kinds for one in declarations(kind) if one.name not in fixed]
    return {one.name: one.allowed for one in declared}


def documentation(kind: Any) -> str:
    """The docstring of a part's file: formula, traps, where the authors' code differs."""
    return inspect.getdoc(sys.modules[kind.__module__]) or ""
