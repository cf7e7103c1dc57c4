"""What a comparison asks for, and the file that keeps it: `compare.toml`."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from undrift.core.errors import BadRequest
from undrift.study.tasks import Task


@dataclass(frozen=True)
class Entry:
    """A method and the options it does not share with the others."""

    method: Any
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        name = self.method if isinstance(self.method, str) else getattr(self.method, "name", None) or repr(self.method)
        return " ".join([str(name), *(f"{key}={value}" for key, value in self.own.items())])


@dataclass(frozen=True)
class Comparison:
    """What was asked for; `compare.toml` keeps it."""

    entries: tuple[Entry, ...]
    options: Mapping[str, Any]
    seeds: tuple[tuple[int, int], ...]  # (seed of the run, seed of the federation)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    rejected: tuple[str, ...] = ()  # runs of points that the grid did not choose: no result of the comparison

    def task(self, number: int, seed: tuple[int, int], point: Mapping[str, Any], seconds: float = 0.0) -> Task:
        entry = self.entries[number]
        values = "".join(f"-{key}={value}" for key, value in point.items())
        settings = {**self.options, **entry.own, **point, "seed": seed[0], "data_seed": seed[1]}
        return Task(
            f"{number:02d}-{safe(entry.label)}{safe(values)}-seed{seed[0]}", entry.method, settings,
            {"method": entry.label, "seed": seed[0], **({"chosen": dict(point)} if point else {})}, seconds,
        )  # fmt: skip

    def points(self, entry: Entry) -> list[dict[str, Any]]:
        """The grid of a method; what it sets itself is not searched."""
        free = {key: values for key, values in self.grid.items() if key not in entry.own}
        return [dict(zip(free, values)) for values in itertools.product(*free.values())]


def safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9+@.=-]", "_", name)[:60]


def note(folder: Path, asked: Comparison) -> None:
    (folder / "compare.toml").write_text(tomli_w.dumps(told(asked)))


def told(asked: Comparison) -> dict[str, Any]:
    """The comparison as its file says it."""
    plain = {key: in_words(value) for key, value in asked.options.items() if value is not None}
    return {
        "methods": [{"method": e.method if isinstance(e.method, str) else f"object:{e.label}", **e.own} for e in asked.entries],
        "seeds": [list(pair) for pair in asked.seeds], "options": plain,
        "grid": {key: list(values) for key, values in asked.grid.items()}, "rejected": list(asked.rejected),
    }  # fmt: skip


def in_words(value: Any) -> Any:
    """As a file can hold it; an object by its name alone."""
    if isinstance(value, (list, tuple)):
        return [in_words(item) for item in value]
    return value if isinstance(value, (str, int, float, bool)) else f"object:{type(value).__qualname__}"


def in_file(methods: Sequence[Mapping[str, Any]]) -> list[Entry]:
    return [Entry(one["method"], {key: value for key, value in one.items() if key != "method"}) for one in methods]


def read(folder: Path) -> Comparison:
    """The comparison in a folder."""
    path = folder / "compare.toml"
    if not path.exists():
        raise BadRequest(f"{folder} is not a comparison: it has no compare.toml")
    try:
        table = tomllib.loads(path.read_text())
        entries = in_file(table["methods"])
        seeds = tuple((int(a), int(b)) for a, b in table["seeds"])
        rejected = tuple(str(name) for name in table.get("rejected", ()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise BadRequest(f"{path} cannot be read: {error}") from None
    return Comparison(tuple(entries), table.get("options", {}), seeds, table.get("grid", {}), rejected)
