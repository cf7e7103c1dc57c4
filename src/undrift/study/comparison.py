"""The settings of a comparison, and the file that keeps them: `compare.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from annotated_types import Len, MinLen

from undrift.core.errors import BadRequest
from undrift.core.files import read_toml
from undrift.core.schema import Name, Seed, check, setting
from undrift.experiment.options import Options
from undrift.store import checksums
from undrift.store.durable import write_file
from undrift.store.own_files import refuse_links
from undrift.study.tasks import Task
from undrift.study.verdict import Looks


@dataclass(frozen=True)
class MethodEntry:
    """A method of the comparison, and the options that only its own runs use."""

    method: Any
    own_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        name = self.method if isinstance(self.method, str) else getattr(self.method, "name", None) or repr(self.method)
        return " ".join([str(name), *(f"{key}={value}" for key, value in self.own_options.items())])


@dataclass(frozen=True)
class CompareFile:
    """The keys of compare.toml."""

    methods: Annotated[list[dict[str, Any]], MinLen(1)] = setting(
        ..., "one table per method: `method`, and options of its own"
    )
    seeds: Annotated[list[Annotated[list[Seed], Len(2, 2)]], MinLen(1)] = setting(
        ..., "[seed of the run, seed of the federation] by seed"
    )
    options: dict[str, Any] = setting({}, "the options of all methods")
    grid: dict[str, list[Any]] = setting({}, "the values that are tried, by option")
    rejected: list[Name] = setting([], "folders of runs at grid points that were tried and not chosen")
    until_clear: Annotated[list[Seed], Len(2, 2)] | None = setting(
        None, "with --until-clear: the number of seeds at first, and the largest"
    )


@dataclass(frozen=True)
class Comparison:
    """The settings of a comparison, as the user gave them."""

    entries: tuple[MethodEntry, ...]
    options: Mapping[str, Any]  # of all methods
    seeds: tuple[tuple[int, int], ...]  # (seed of the run, seed of the federation)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    rejected: tuple[str, ...] = ()  # runs of grid points that were not chosen: they are no results
    until_clear: tuple[int, int] | None = None  # seeds are added from the first number up to the second

    @property
    def looks(self) -> Looks | None:
        """How often the results are looked at while seeds are added."""
        return Looks(*self.until_clear) if self.until_clear else None

    def with_one_more_seed(self) -> Comparison:
        """The same comparison with the next seed; its federation varies if those of the others do."""
        (seed, data_seed), varies = self.seeds[-1], len({data_seed for _, data_seed in self.seeds}) > 1
        return replace(self, seeds=(*self.seeds, (seed + 1, data_seed + varies)))

    def task(self, number: int, seed: tuple[int, int], point: Mapping[str, Any]) -> Task:
        """One run: method `number` at a seed and a point of the grid."""
        from undrift.study.grid import at_point

        entry = self.entries[number]
        values = "".join(f"-{key}={value}" for key, value in point.items())
        method, options = at_point(entry.method, point)
        at = MethodEntry(method, {**entry.own_options, **options})
        settings = {**self.options, **at.own_options, "seed": seed[0], "data_seed": seed[1]}
        row = {"method": at.label, "seed": seed[0], **({"chosen": dict(point)} if point else {})}
        name = f"{number:02d}-{safe(entry.label)}{safe(values)}-seed{seed[0]}"
        return Task(name, method, settings, row)

    def foreign_code(self) -> list[str]:
        """The code outside Undrift that the methods and options name."""
        from undrift.experiment.foreign_code import foreign_code

        named = [
            foreign_code({**self.options, **entry.own_options, "method": entry.method}) for entry in self.entries
        ] + [foreign_code({key: value}) for key, values in self.grid.items() for value in values]
        return list(dict.fromkeys(name for names in named for name in names))

    def points(self, entry: MethodEntry) -> list[dict[str, Any]]:
        """The points of the grid for a method. An option that the method sets itself is not searched."""
        from undrift.study.grid import points_of

        return points_of(entry, self.grid)


def safe(name: str) -> str:
    """A name that can be part of a path, at most 60 characters."""
    return re.sub(r"[^A-Za-z0-9+@.=-]", "_", name)[:60]


def write_comparison(folder: Path, comparison: Comparison) -> None:
    table = tomllib.loads(tomli_w.dumps(as_table(comparison)))  # as it will be read
    write_file(folder / "compare.toml", tomli_w.dumps(checksums.with_crc(table)).encode())


def as_table(comparison: Comparison) -> dict[str, Any]:
    """The content of compare.toml."""
    return {
        "methods": [
            {"method": e.method if isinstance(e.method, str) else f"object:{e.label}", **e.own_options}
            for e in comparison.entries
        ],
        "seeds": [list(pair) for pair in comparison.seeds],
        "options": {key: plain(value) for key, value in comparison.options.items() if value is not None},
        "grid": {key: list(values) for key, values in comparison.grid.items()},
        "rejected": list(comparison.rejected),
        **({"until_clear": list(comparison.until_clear)} if comparison.until_clear else {}),
    }


def plain(value: Any) -> Any:
    """A value as TOML can hold it. An object becomes the name of its type."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool)) else f"object:{type(value).__qualname__}"


def entries_of(methods: Sequence[Mapping[str, Any]]) -> list[MethodEntry]:
    """The entries that `methods` of compare.toml describes."""
    return [
        MethodEntry(item["method"], {key: value for key, value in item.items() if key != "method"}) for item in methods
    ]


def read_comparison(folder: Path) -> Comparison:
    """The comparison in a folder."""
    path = folder / "compare.toml"
    if not path.exists():
        raise BadRequest(f"{folder} is not a comparison: it has no compare.toml; give the folder of one")
    refuse_links(folder)
    try:
        return parsed_comparison(path)
    except BadRequest as error:
        raise BadRequest(f"{error}; restore it, or compare again with another --out") from None


def parsed_comparison(path: Path) -> Comparison:
    try:
        written = read_toml(path)
        table = check(CompareFile, {key: value for key, value in written.items() if key != "crc32"}, str(path))
        check_options(table, path)
        checksums.without_crc(written)
    except BadRequest:
        raise
    except ValueError as error:  # its checksum is another one
        raise BadRequest(f"{path} cannot be read: {error}") from None
    seeds = tuple((first, second) for first, second in table["seeds"])
    rejected = tuple(table.get("rejected", ()))
    options, grid, until = table.get("options", {}), table.get("grid", {}), table.get("until_clear")
    until_clear = (until[0], until[1]) if until else None
    return Comparison(tuple(entries_of(table["methods"])), options, seeds, grid, rejected, until_clear)


def check_options(table: Mapping[str, Any], path: Path) -> None:
    """Every option in a compare.toml: of all methods, of one, of the grid."""
    for number, entry in enumerate(table["methods"]):
        check(Options, entry, f"{path}: methods[{number}]")
    check(Options, table.get("options", {}), f"{path}: options")
    for name, values in table.get("grid", {}).items():
        for value in values if "." not in name else ():  # `fedprox.mu` is checked with the method
            check(Options, {name: value}, f"{path}: grid")
