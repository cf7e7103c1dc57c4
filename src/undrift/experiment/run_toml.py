"""Write and read run.toml: every option of a run with its value, and what made the run."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import time
import tomllib
import types
import typing
from pathlib import Path
from typing import Any

import tomli_w
import torch

from undrift.contract.parts import AXES
from undrift.core import text
from undrift.core.errors import BadRequest, unknown
from undrift.core.user_code import address
from undrift.experiment import kept_code
from undrift.experiment.agreement import method_digest
from undrift.experiment.options import FIELDS, HINTS
from undrift.experiment.setup import Setup
from undrift.methods.naming import part_tables
from undrift.round.selection import Uniform
from undrift.store.durable import write_file
from undrift.store.record import Record


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
    if setup.federation.spec is not None:
        values.update({k: v for k, v in setup.federation.spec.items() if k in FIELDS})
    else:
        values.update({"data": f"object:{setup.federation.name}", "clients": setup.federation.clients})
        values.update(dict.fromkeys(("partition", "noise", "domains", "proxy")))  # not made from these options
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
        "layout": setup.plan.layout.signature, "dealt": setup.federation.provenance(),
        "method": method_digest(setup.method.name, [part_text(part) for part in setup.method.parts]),
        **({"code": code} if (code := kept_code.hashes(option_values(setup))) else {}),
        "environment": {
            name: os.environ[name]
            for name in ("MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY") if name in os.environ
        },
    }  # fmt: skip


def read_toml(path: Path) -> dict[str, Any]:
    """The options in a run.toml, with names and types checked. `parts` are the resolved parts of the method."""
    return checked_options(parse_toml(read_text(path), path), path)


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadRequest(f"there is no file {path}") from None
    except IsADirectoryError:
        raise BadRequest(f"{path} is a folder; give the run.toml in it") from None
    except UnicodeDecodeError as error:
        raise BadRequest(f"{path} is not a TOML file: {error}") from None


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadRequest(f"{path} is not a TOML file: {error}") from None


def checked_options(written: dict[str, Any], path: Path) -> dict[str, Any]:
    """The options in the content of a run.toml."""
    table = {name: value for name, value in written.items() if name not in ("about", "deploy")}  # `deploy/spec.py`
    for name, value in table.items():
        if name == "parts":
            if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
                raise BadRequest(f"{path}: parts is {value!r}, which is not a list of texts")
            continue
        if name not in FIELDS:
            raise unknown(f"key of {path}", name, FIELDS)
        if not has_type(value, HINTS[name]):
            raise BadRequest(f"{path}: {name} is {value!r}, which is not {text.wording(HINTS[name])}")
    return table


def has_type(value: Any, hint: Any) -> bool:
    """Whether a value of run.toml has the type of its option."""
    if hint is Any:
        return isinstance(value, (str, int, float, list))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(has_type(value, option) for option in typing.get_args(hint))
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) else value is None


def write_toml(path: Path, values: dict[str, Any], tables: dict[str, Any], record: Record) -> None:
    """Write run.toml: the options, and tables such as `about`. The record keeps the text."""
    options = {name: list(v) if isinstance(v, tuple) else v for name, v in values.items() if v is not None}
    text = tomli_w.dumps({**options, **tables})
    write_file(path, text.encode())
    record.keep_text(path.name, text)


def record_rounds(path: Path, rounds: int, record: Record) -> None:
    """Write a new total of rounds into a run.toml, before the first of them: a run that is stopped keeps its goal. The
    record knows both texts meanwhile, so a power cut leaves no file that looks edited."""
    text = tomli_w.dumps({**tomllib.loads(path.read_text()), "rounds": rounds})
    record.keep_text(path.name, text, replace=False)
    write_file(path, text.encode())
    record.keep_text(path.name, text)


assert set(FIELDS) >= set(AXIS_OPTIONS)
