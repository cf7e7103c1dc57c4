"""A description of a published method or a part as one dict, made without running it.

`bench/catalogue.py` adds the costs, which are counted in a run.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from undrift.contract.compose import PREFERRED
from undrift.contract.parameters import parameters as declarations
from undrift.contract.parts import Part, axes_of, defines
from undrift.core.references import resolve
from undrift.core.text import Call, parse_method, spell
from undrift.methods import evidence
from undrift.methods.naming import method, method_pieces, part_tables
from undrift.methods.published import PUBLISHED, Published
from undrift.tasks import TASKS

# Parts with required parameters, and the values used to count their costs.
EXAMPLES = {"private.named": 'private.named("*bias")', "weighting.mix": "weighting.mix([size(), bound()], [0.5, 0.5])"}


def describe(name: str) -> dict[str, Any]:
    """Describe a method as it is typed: a published name, `axis.part`, a part's name alone, `package:name` of your own,
    each with or without parameters, or several joined by + and @."""
    calls = [call for _, call in parse_method(name)]
    example = EXAMPLES.get(name, name)
    pieces = method_pieces(example)
    stays = method(example).parts if len(calls) > 1 else [piece.part for piece in pieces]  # without what gives way
    brings = [piece.part for piece in pieces if piece.rank > PREFERRED and piece.part in stays]
    ours = [part for part in brings if type(part).__module__.startswith("undrift.")]
    several = len(calls) > 1
    found = {
        "name": full_name(name, brings),
        "what": " ".join(dict.fromkeys(filter(None, (what(call) for call in calls)))) or "your own method",
        "paper": "; ".join(entry.paper for entry in entries(calls) if entry.paper),
        "parameters": {
            f"{call.name}.{parameter}" if several else parameter: default
            for call in calls
            for parameter, default in parameters(factory(call)).items()
        },
        "allowed": allowed((type(part) for part in brings), {name for entry in entries(calls) for name in entry.fixed}),
    }
    found |= facts(example, brings, [piece.part for piece in pieces if piece.rank == PREFERRED])
    if len(ours) == len(brings):
        return found
    return found | {"laws": sorted({evidence.laws(part.key) for part in ours}), "findings": []}


def full_name(name: str, brings: Sequence[Part]) -> str:
    """A part's name alone with its axis; every other name as it is typed."""
    alone = name not in PUBLISHED and name.isidentifier() and len(brings) == 1
    return f"{brings[0].axis}.{name}" if alone else name


def entries(calls: Iterable[Call]) -> list[Published]:
    return [PUBLISHED[call.name] for call in calls if call.name in PUBLISHED]


def factory(call: Call) -> Any:
    """What a call of a method's text makes its parts with: the class of a part, or a function that returns parts."""
    if call.name in PUBLISHED:
        return PUBLISHED[call.name].factory
    tables = part_tables()
    axis, _, short = call.name.partition(".")
    own = short if axis in tables and short else call.name
    if ":" in own:
        return resolve(own, "method")
    return next(tables[a][own] for a in ([axis] if own == short else tables) if own in tables[a])


def what(call: Call) -> str:
    """One sentence about a call: of the table of published names, of a part's file, or the user's own docstring."""
    if call.name in PUBLISHED:
        return PUBLISHED[call.name].what
    made = factory(call)
    if ":" in call.name:
        return " ".join(own_documentation(made).split("\n\n")[0].split())
    return documentation(made).splitlines()[0]


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
        "about": list(filter(None, dict.fromkeys(documentation(type(part)) for part in brings))),
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
    """The docstring of a part's file: formula, traps, where the authors' code differs. Without one, that of the part."""
    return inspect.getdoc(sys.modules[kind.__module__]) or own_documentation(kind)


def own_documentation(made: Any) -> str:
    """The docstring of a class or function; not the one that `dataclass` writes, which is the signature."""
    text = inspect.getdoc(made) or ""
    return "" if text.startswith(f"{getattr(made, '__name__', '')}(") else text
