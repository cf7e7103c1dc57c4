"""The file of a race, advise.toml: what was asked, and the rounds that a budget in minutes gave."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from annotated_types import Ge

from undrift.advice.shortlist import Constraints
from undrift.core.errors import BadRequest
from undrift.core.files import read_toml
from undrift.core.schema import Name, Seed, check, setting
from undrift.experiment.options import Options
from undrift.store import checksums
from undrift.store.durable import write_file
from undrift.store.own_files import refuse_links
from undrift.study.comparison import plain

FILE = "advise.toml"


@dataclass(frozen=True)
class AdviseFile:
    """The keys of advise.toml."""

    budget: Name = setting(..., "what the race may cost, as it was typed: 10m, 2000r")
    options: dict[str, Any] = setting({}, "the options of all runs")
    constraints: dict[str, Any] = setting({}, "what the user allows: `memory`, `may_leave`, `dp`, `personal`")
    all: bool = setting(False, "whether every method that applies is raced")
    methods: list[Name] = setting([], "methods that the user added to the shortlist")
    seed: Seed = setting(0, "seed of the first run")
    data_seed: Seed | None = setting(None, "seed of the federation alone, if all runs share it")
    rounds: Annotated[int, Ge(1)] | None = setting(None, "rounds of the plan that the budget paid for")
    stages: list[Annotated[int, Ge(0)]] = setting(
        [], "rounds of every heat and of the fresh seeds, where a budget in minutes was cut while the race went on"
    )
    about: list[Name] = setting([], "sentences about what is raced, such as a federation made like the sites' sketches")


@dataclass(frozen=True)
class Asked:
    """What was asked of the advisor."""

    options: dict[str, Any]
    budget: str = "10m"
    constraints: Constraints = field(default_factory=Constraints)
    everything: bool = False
    methods: tuple[str, ...] = ()
    seed: int = 0
    data_seed: int | None = None
    rounds: int | None = None  # of the plan, once it is chosen
    about: tuple[str, ...] = ()  # sentences for the answer
    stages: tuple[int, ...] = ()  # rounds of the plan's heats and fresh seeds, if it was cut


def write_race(folder: Path, asked: Asked) -> None:
    table = {
        "budget": asked.budget, "options": {k: plain(v) for k, v in asked.options.items() if v is not None},
        "constraints": {k: v for k, v in asdict(asked.constraints).items() if v is not None},
        "all": asked.everything, "methods": list(asked.methods), "seed": asked.seed, "data_seed": asked.data_seed,
        "rounds": asked.rounds, "stages": list(asked.stages), "about": list(asked.about),
    }  # fmt: skip
    text = tomli_w.dumps({key: value for key, value in table.items() if value is not None})
    write_file(folder / FILE, tomli_w.dumps(checksums.with_crc(tomllib.loads(text))).encode())


def read_race(folder: Path) -> Asked:
    """What was asked of the race in a folder."""
    path = folder / FILE
    if not path.exists():
        raise BadRequest(f"{folder} is not a race: it has no {FILE}; name a folder that `undrift advise` made")
    refuse_links(folder)
    try:
        written = read_toml(path)
        table = check(AdviseFile, {key: value for key, value in written.items() if key != "crc32"}, str(path))
        check(Options, table["options"], f"{path}: options")
        checksums.without_crc(written)
        constraints = Constraints(**table.get("constraints", {}))
    except BadRequest as error:
        raise BadRequest(f"{error}; restore it, or ask again with another --out") from None
    except (TypeError, ValueError) as error:
        raise BadRequest(f"{path} cannot be read: {error}; restore it, or ask again with another --out") from None
    return Asked(
        dict(table["options"]), table["budget"], constraints, table.get("all", False), tuple(table.get("methods", ())),
        table.get("seed", 0), table.get("data_seed"), table.get("rounds"), tuple(table.get("about", ())),
        tuple(table.get("stages", ())),
    )  # fmt: skip
