"""Which objects an option takes in Python beside its text. Files and the command line hold texts only."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from undrift.core.errors import BadRequest
from undrift.core.words import shown

Fits = Callable[[Any], bool]


def check_object(name: str, value: Any) -> None:
    """Refuse an object that is not what the option needs. Texts are read later, where they are used."""
    words, fits = objects()[name]
    if value is None or isinstance(value, str):
        return
    if not fits(value):
        if name == "model":
            raise BadRequest(f"the model is {words}, not {shown(value)}")
        raise BadRequest(f"--{name.replace('_', '-')} must be {words}, not {shown(value)}")


def objects() -> dict[str, tuple[str, Fits]]:
    """By option: what it may be, in words, and whether an object is that."""
    from torch import nn

    from undrift.contract.compose import Method
    from undrift.contract.parts import AXES, Part
    from undrift.contract.task import Task

    def part_of(axis: str) -> Fits:
        return lambda value: isinstance(value, Part) and value.axis == axis

    def model(value: Any) -> bool:
        return isinstance(value, nn.Module) or function(value)

    return {
        "method": ("a method's text, a part, a method, or a list of these", several(kind(Part, Method))),
        "data": ("the name of a data set, a path, or a DataSet", lambda value: isinstance(value, os.PathLike) or data(value)),
        "partition": ("a partition, or its text", function),
        "noise": ("noise, its text, or a list of these", several(having("apply", "when"))),
        "domains": ("domains, their text, or a list of these", several(function)),
        "faults": ("faults, their text, or a list of these", several(having("hits", "order", "reply"))),
        "model": ("a name, a torch.nn.Module or a function that makes one", model),
        "selection": ("a selection, or its text", having("choose")),
        "augment": ("an augmentation, its text, or a list of these", several(function)),
        "task": ("a task, or its text", kind(Task)),
        "loss": ("a function of (logits, y), or package:function", function),
        "init": ("the path of a .safetensors file", kind(os.PathLike)),
        "metrics": ("functions of (logits, y), by name or in a list, or their texts", metrics),
        "diagnose": ("diagnostics, their text, or a list of these", several(having("check", "name"))),
        "ood": ("the name of a data set, or a DataSet", data),
        "out": ("a folder, or False", lambda value: value is False or isinstance(value, os.PathLike)),
        **{axis: (f"a part of the axis {axis}, or its text", part_of(axis)) for axis in AXES},
        "upload": ("parts of the axis upload, their text, or a list of these", several(part_of("upload"))),
    }  # fmt: skip


def kind(*classes: type) -> Fits:
    return lambda value: isinstance(value, classes)


def having(*names: str) -> Fits:
    return lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in names)


def function(value: Any) -> bool:
    """A function, or an object that is called like one. The types of Python's own values are neither."""
    return callable(value) and value not in (int, float, bool, str, list, dict, tuple, set, object)


def several(fits: Fits) -> Fits:
    """Such an object, or a list of such objects and texts that is not empty."""

    def all_fit(value: Any) -> bool:
        if isinstance(value, (list, tuple)):
            return bool(value) and all(isinstance(item, str) or all_fit(item) for item in value)
        return fits(value)

    return all_fit


def metrics(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and function(one) for name, one in value.items())
    return several(function)(value)


data = having("x_train", "y_train", "x_test", "y_test", "shape", "name")
