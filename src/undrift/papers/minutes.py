"""How long a preset takes on two cores: measured as a whole, or from its kept runs, else the estimate in the preset.

minutes.json has the seconds of whole commands at quick scale (`commands`, from benchmarks/quick_presets.json) and the seconds of
a round, by preset, scale and column (`rounds`, from the result files). `docs/results/run tables` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import mean
from typing import Any

from undrift.papers.papers import Preset, load
from undrift.papers.scales import scaled

CORES = 2  # of the machine that the minutes are given for: one run per core
Seconds = Mapping[str, Mapping[str, Mapping[str, float]]]  # preset -> scale -> column -> seconds of a round of one run


@dataclass(frozen=True)
class Minutes:
    """How long a preset takes at a scale."""

    minutes: float
    measured: bool  # the whole command, or from kept runs of every column; else an estimate


def minutes(preset: Preset, scale: str, found: Mapping[str, Any] | None = None) -> Minutes | None:
    """The time of a preset at a scale, or None if it does not have the scale or nobody estimated it. `found`: what is known
    instead of minutes.json."""
    said = getattr(preset, scale)
    if not said and scale != "paper":
        return None
    asked, found = scaled(preset, scale), shipped() if found is None else found
    commands: Mapping[str, float] = found.get("commands", {})
    if scale == "quick" and preset.runs_name in commands:
        return Minutes(commands[preset.runs_name] / 60, True)
    rounds: Seconds = found.get("rounds", {})
    known = rounds.get(preset.runs_name, {}).get(scale, {})
    if preset.trains and all(column.name in known for column in asked.columns):
        each = sum(known[column.name] for column in asked.columns) * len(asked.rows) * len(asked.seeds)
        return Minutes(each * asked.options["rounds"] / 60 / CORES, True)
    return Minutes(said["minutes"], False) if "minutes" in said else None


def seconds_of_rounds(lines: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """What minutes.json has, from the lines of result files. Of a column the newest day counts: code and machines change."""
    found: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for line in lines:
        if "seconds" in line and line.get("rounds"):
            place = line["preset"], line["scale"], line["column"]
            found.setdefault(place, {}).setdefault(line["date"], []).append(line["seconds"] / line["rounds"])
    table: dict[str, dict[str, dict[str, float]]] = {}
    for (preset, scale, column), days in sorted(found.items()):
        table.setdefault(preset, {}).setdefault(scale, {})[column] = float(f"{mean(days[max(days)]):.3g}")
    return table


def seconds_of_commands(measured: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds of `paper run NAME --scale quick`, of the presets that were measured with all their cells."""
    table = {}
    for one in measured:
        asked = scaled(load(one["preset"]), "quick")
        if one["cells"] == len(asked.rows) * len(asked.columns):
            table[one["preset"]] = float(one["new"])
    return table


@cache
def shipped() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((files("undrift.papers") / "minutes.json").read_text())
    return found
