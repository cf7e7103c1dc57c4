"""Write and read run.toml: every option of a run with its value, and what made the run."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
import torch

from undrift.contract.parts import AXES
from undrift.core import files, text
from undrift.core.errors import BadRequest
from undrift.core.schema import Name, check, hints_of, setting
from undrift.core.user_code import address
from undrift.experiment import kept_code
from undrift.experiment.agreement import method_digest
from undrift.experiment.options import FIELDS, Options
from undrift.experiment.setup import Setup
from undrift.methods.naming import part_tables
from undrift.round.selection import Uniform
from undrift.store.durable import write_file
from undrift.store.record import Record
from undrift.tasks.classification import Classification


def option_values(setup: Setup) -> dict[str, Any]:
    """Every option with its value in this run. Objects that text cannot name become `object:…`."""
    values: dict[str, Any] = {}
    for name in FIELDS:
        value = getattr(setup.options, name)
        if name in ("out", "force", *AXIS_OPTIONS):
            continue
        if isinstance(value, os.PathLike):
            value = str(value)
        values[name] = value if value is None or isinstance(value, (str, int, float, tuple)) else value_text(value)
    values["method"] = setup.method.name
    if isinstance(setup.selection, Uniform):
        values["cohort"] = setup.selection.cohort
    given = setup.options.model
    values["model"] = setup.model_name if given is None or isinstance(given, str) else f"object:{setup.model_name}"
    values["task"] = run_task(setup)
    if setup.federation.spec is not None:
        values.update({k: v for k, v in setup.federation.spec.items() if k in FIELDS and k != "task"})
    else:
        values.update({"data": f"object:{setup.federation.name}", "clients": setup.federation.clients})
        values.update(
            dict.fromkeys(("partition", "noise", "domains", "proxy", "standardise"))
        )  # not made from these options
    values["parts"] = [part_text(part) for part in setup.method.parts]
    return values


AXIS_OPTIONS = tuple(AXES)


def part_text(part: Any) -> str:
    """A part as text that builds it again: `axis.name(…)`, of a user's part `axis.package:Class(…)`. If its class cannot be
    imported, `axis.object:` and its repr."""
    if part_tables()[part.axis].get(part.name) is type(part):
        return f"{part.axis}.{text.spell(part)}"
    if place := address(type(part)):
        fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.init}
        with contextlib.suppress(BadRequest):  # a value that text cannot name
            return f"{part.axis}.{text.spell(text.Call(place, (), fields))}"
    return f"{part.axis}.object:{part!r}"


def run_task(setup: Setup) -> Any:
    """The task of the run as text. Classification, which is the default, and what text cannot name go without."""
    if setup.options.task is not None:
        return task_text(setup.options.task)
    written = None if isinstance(setup.plan.task, Classification) else task_text(setup.plan.task)
    return None if written is None or written.startswith("object:") else written


def task_text(task: Any) -> Any:
    """A task as the text that makes it again, or `object:` and its repr."""
    if task is None or isinstance(task, str):
        return task
    if type(task).__module__.startswith("undrift."):
        return task.spelled
    if place := address(type(task)):
        fields = {field.name: getattr(task, field.name) for field in dataclasses.fields(task) if field.init}
        with contextlib.suppress(BadRequest):  # a value that text cannot name
            return text.spell(text.Call(place, (), fields))
    return f"object:{task!r}"


def value_text(value: Any) -> str:
    """A value as the text that builds it again, or `object:` and its type."""
    try:
        return text.spell(value)
    except BadRequest:
        return f"object:{type(value).__module__}.{type(value).__qualname__}"


def provenance(setup: Setup) -> dict[str, Any]:
    """What made this run: versions, machine, fingerprints, and the settings that change bits."""
    import numpy

    import undrift

    return {
        "undrift": undrift.__version__, "python": platform.python_version(), "torch": torch.__version__,
        "numpy": numpy.__version__, "cpu": torch.backends.cpu.get_cpu_capability(), "machine": platform.machine(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "federation": setup.federation.fingerprint,
        "layout": setup.plan.layout.signature, **({"base": base} if (base := setup.runtime.model.frozen.digest) else {}),
        "clients": setup.plan.lockstep_why, "dealt": setup.federation.provenance(),
        "method": method_digest(setup.method.name, [part_text(part) for part in setup.method.parts]),
        **({"code": code} if (code := kept_code.hashes(option_values(setup))) else {}),
        "environment": {
            name: os.environ[name]
            for name in ("MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY") if name in os.environ
        },
    }  # fmt: skip


@dataclass(frozen=True)
class About:
    """The table `about`: what made the run. Other keys are kept and not read again."""

    undrift: str = setting("", "version that made the run; only that version resumes it")
    federation: str = setting("", "fingerprint of the data and how they were dealt")
    layout: str = setting("", "fingerprint of the network's layout")
    base: str | None = setting(None, "SHA-256 of the frozen parameters, where the network has some")
    clients: str = setting("", "whether clients trained in lock-step or one by one, and why")
    method: str | None = setting(None, "hash of `method` and `parts`, which shows an edit of either")
    dealt: dict[str, Any] = setting({}, "how the data were split between clients, repairs and sizes")


@dataclass(frozen=True)
class RunTables:
    """What a run.toml has beside the options."""

    parts: list[Name] | None = setting(None, "the resolved parts of the method, each as axis.name(…)")
    about: dict[str, Any] = setting({}, "what made the run")
    deploy: dict[str, Any] | None = setting(None, "the sites of a deployment")


@dataclass(frozen=True)
class RunToml:
    """A run.toml that was read and checked."""

    options: dict[str, Any]  # with `parts`, if there are any
    about: dict[str, Any]
    deploy: dict[str, Any] | None

    @property
    def settings(self) -> dict[str, Any]:
        """The options, with the defaults of those that the file does not have."""
        defaults = {name: field.default for name, field in FIELDS.items() if field.default is not None}
        return {**defaults, **self.options}


def read_run(path: Path) -> RunToml:
    """A run.toml with the names and types of all its keys checked."""
    return checked_run(files.read_toml(path), path)


def checked_run(written: dict[str, Any], path: Path) -> RunToml:
    """The content of a run.toml, checked."""
    tables = check(RunTables, {name: value for name, value in written.items() if name in RUN_TABLES}, str(path))
    options = check(Options, {name: value for name, value in written.items() if name not in RUN_TABLES}, str(path))
    if "parts" in tables:
        options["parts"] = tables["parts"]
    about = check(About, tables.get("about", {}), f"{path}: about", more=True)
    return RunToml(options, about, tables.get("deploy"))


def read_toml(path: Path) -> dict[str, Any]:
    """The options in a run.toml, and `parts`, the resolved parts of the method."""
    return read_run(path).options


RUN_TABLES = tuple(hints_of(RunTables))


def write_toml(path: Path, values: dict[str, Any], tables: dict[str, Any], record: Record) -> None:
    """Write run.toml: the options, and tables such as `about`. The record keeps the text."""
    options = {name: list(v) if isinstance(v, tuple) else v for name, v in values.items() if v is not None}
    text = tomli_w.dumps({**options, **tables})
    write_file(path, text.encode())
    record.keep_text(path.name, text)


def record_rounds(path: Path, rounds: int, record: Record) -> None:
    """Write a new total of rounds into a run.toml, before the first of them: a run that is stopped keeps its goal. The
    record knows both texts meanwhile, so a power cut leaves no file that looks edited."""
    text = tomli_w.dumps({**files.read_toml(path), "rounds": rounds})
    record.keep_text(path.name, text, replace=False)
    write_file(path, text.encode())
    record.keep_text(path.name, text)


assert set(FIELDS) >= set(AXIS_OPTIONS)
