"""What a deployment takes over from a simulation: settings, code, and what its samples are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from undrift import data as data_sets
from undrift.core.errors import BadRequest
from undrift.data.dataset import DataSet, with_constants
from undrift.experiment import kept_code
from undrift.experiment.folders import run_folder
from undrift.experiment.foreign_code import foreign_code
from undrift.experiment.run_toml import read_toml
from undrift.federation.dealing import asked_task

OF_DATA = (
    "data",
    "standardise",
    "target",
    "client_column",
)  # they say how samples are read, and do not go to the sites
SHARED = (
    "method", "parts", "model", "rounds", "epochs", "batch", "optimizer", "lr", "momentum", "weight_decay", "lr_decay",
    "clip", "persist_momentum", "weight_cap", "augment", "loss", "seed", "task", "evaluate_every", "adapt", *OF_DATA,
)  # fmt: skip


def settings_of(run: str | None) -> dict[str, Any]:
    """The settings of a simulation that also apply to a deployment. Its own code becomes importable."""
    if run is None:
        return {}
    folder = run_folder(run)
    table = read_toml(folder / "run.toml")
    kept_code.make_importable(foreign_code(table), folder / kept_code.FOLDER)
    settings = {name: table[name] for name in SHARED if name in table}
    if is_object(settings.get("data")):  # made in Python: --shape and --labels say what samples are
        del settings["data"]
    for name, value in settings.items():
        if is_object(value):
            raise BadRequest(f"{run} has a {name} that text cannot name; put it in a file and name it package:function")
    return settings


def is_object(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("object:")


def source_of(options: Mapping[str, Any]) -> DataSet | None:
    """The data set that the options name, standardised as in the simulation; None if they name none."""
    data = options.get("data")
    if data is None:
        return None
    columns = {name: options.get(name) for name in ("target", "client_column")}
    source = data_sets.load(data, task=options.get("task"), **columns)
    standardise = options.get("standardise")
    return source if standardise is None else with_constants(source, standardise)


def task_of(source: DataSet | None, task: Any) -> dict[str, Any]:
    """The option `task` where the samples have no classes: centre and scale of a regression are those of the data."""
    if source is None:
        return {}
    kind = source.as_task if task is None else asked_task(source, task)
    return {} if "labels" in kind.provides else {"task": kind.spelled}
