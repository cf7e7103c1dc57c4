"""The grid of a comparison: which values are tried for which method.

lr                an option of training, tried for every method that does not set it itself
fedprox.mu        a parameter of a method, tried where the method is named, alone or in a composition
fedprox.lr        an option of training, tried for this method only
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from undrift.contract.parts import AXES
from undrift.core.errors import BadRequest, unknown
from undrift.core.references import resolve
from undrift.core.text import Call, parse_method, spell
from undrift.core.words import shown
from undrift.experiment.given import FEDERATION_OPTIONS
from undrift.experiment.options import FIELDS, from_keywords

if TYPE_CHECKING:
    from undrift.study.comparison import MethodEntry

Grid = Mapping[str, Sequence[Any]]
SHARED = ("method", "seed", "data_seed", "out", "force", "engine", "workers", "memory", "track")  # of all methods


def check_grid(grid: Grid, entries: Sequence[MethodEntry]) -> None:
    """Refuse what a grid cannot search, with one sentence."""
    for key, values in grid.items():
        name, _, parameter = key.rpartition(".")
        if name:
            check_named(key, name, parameter, entries)
        else:
            check_option(key, key)
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise BadRequest(f"--grid {key} must be a list of values, not {shown(values)}")
        if not values:
            raise BadRequest(f"--grid {key} has no values; write --grid {key}=0.01,0.1")
        check_values(name, parameter, values, entries)


def check_values(name: str, option: str, values: Sequence[Any], entries: Sequence[MethodEntry]) -> None:
    """Refuse values that the option cannot have. Those of a method's parameter are checked with the method."""
    calls = [call for entry in entries for call in calls_of(entry.method) if name and is_called(call, name)]
    if calls and option in parameters_of(calls[0]):
        return
    for value in values:
        from_keywords({option: value, **({"validation": 0.5} if option == "stop_at" else {})})


def check_option(key: str, option: str) -> None:
    if option in ("seed", "data_seed"):
        raise BadRequest(f"--grid {key} would choose the luckiest seed; --seeds N runs every method on N seeds")
    if option in AXES:
        raise BadRequest(
            f"--grid {key} would turn one method into another under its name; compare the methods by name, and "
            "search a parameter of one: --grid fedprox.mu=0.01,0.1"
        )
    if option not in FIELDS or option in SHARED:
        searched = [name for name in FIELDS if name not in (*SHARED, *AXES, *FEDERATION_OPTIONS)]
        raise unknown("option for --grid", option, searched)
    if option in FEDERATION_OPTIONS:
        raise BadRequest(
            f"--grid {key} would choose the easiest federation, and all methods share one; search options of "
            "training, such as lr"
        )


def check_named(key: str, name: str, parameter: str, entries: Sequence[MethodEntry]) -> None:
    """Refuse `name.parameter` if no method is called so, or if it has no such parameter."""
    named = [call for entry in entries for call in calls_of(entry.method) if is_called(call, name)]
    if not named:
        raise BadRequest(
            f"--grid {key} searches {name}, which none of {', '.join(entry.label for entry in entries)} names; "
            "name the method as in the comparison"
        )
    if parameter in parameters_of(named[0]):
        return
    if parameter not in FIELDS:
        raise unknown(f"parameter of {name}", parameter, [*parameters_of(named[0]), "lr", "momentum", "epochs"])
    check_option(key, parameter)


def points_of(entry: MethodEntry, grid: Grid) -> list[dict[str, Any]]:
    """The points of the grid for a method. What the method sets itself is not searched."""
    calls = calls_of(entry.method)
    free = {}
    for key, values in grid.items():
        name, _, parameter = key.rpartition(".")
        call = next((call for call in calls if is_called(call, name)), None) if name else None
        if name and call is None:
            continue
        if call is not None and parameter in parameters_of(call):
            if parameter not in given_to(call):
                free[key] = values
        elif parameter not in entry.own_options:
            free[key] = values
    named = {key.rpartition(".")[2] for key in free if "." in key}
    free = {key: values for key, values in free.items() if "." in key or key not in named}  # its own values instead
    return [dict(zip(free, values)) for values in itertools.product(*free.values())]


def at_point(method: Any, point: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """(the method with the parameters of a point, the options of the point)."""
    options: dict[str, Any] = {}
    terms = parse_method(method) if isinstance(method, str) and any("." in key for key in point) else []
    changed = False
    for key, value in point.items():
        name, _, parameter = key.rpartition(".")
        place = next((i for i, (_, call) in enumerate(terms) if name and is_called(call, name)), None)
        if place is not None and parameter in parameters_of(terms[place][1]):
            mark, call = terms[place]
            terms[place] = mark, replace(call, options={**call.options, parameter: value})
            changed = True
        else:
            options[parameter] = value
    if not changed:
        return method, options
    return "".join(mark + spell(call) for mark, call in terms).removeprefix("+"), options


def calls_of(method: Any) -> list[Call]:
    """What a method's text names; nothing for an object, or for a text that is refused elsewhere."""
    if not isinstance(method, str):
        return []
    try:
        return [call for _, call in parse_method(method)]
    except BadRequest:
        return []


def is_called(call: Call, name: str) -> bool:
    return call.name == name or call.name.endswith((f".{name}", f":{name}"))


def parameters_of(call: Call) -> list[str]:
    """The names of the parameters that a method, or a part, takes."""
    from undrift.methods.naming import part_tables
    from undrift.methods.published import PUBLISHED

    if call.name in PUBLISHED:
        return list(PUBLISHED[call.name].signature.parameters)
    if ":" in call.name:
        own = resolve(call.name, "method")
        return list(inspect.signature(own).parameters) if callable(own) else []
    short = call.name.rpartition(".")[2]
    found = next((table[short] for table in part_tables().values() if short in table), None)
    return [] if found is None else list(inspect.signature(found).parameters)


def given_to(call: Call) -> set[str]:
    """The parameters that the text sets itself."""
    return {*parameters_of(call)[: len(call.args)], *call.options}
