"""Undrift: federated learning that holds on data that is not alike."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from undrift import tasks
    from undrift.advice.advisor import advise
    from undrift.contract.compose import Method
    from undrift.contract.task import Task
    from undrift.core.samples import Columns, Ragged
    from undrift.experiment.result import Result
    from undrift.experiment.resume import load, resume
    from undrift.experiment.runner import run
    from undrift.federation import partition
    from undrift.federation.dealing import federate
    from undrift.federation.environment import noise
    from undrift.federation.federation import Federation
    from undrift.methods import combine, objectives, personalize, private, sampling, server, weighting
    from undrift.methods.naming import method
    from undrift.round import selection
    from undrift.study.compare import compare

# Names are imported when they are first used: `undrift --version` should not wait for torch.
FUNCTIONS_AND_CLASSES = {
    "Federation": "undrift.federation.federation",
    "Columns": "undrift.core.samples",
    "Ragged": "undrift.core.samples",
    "Task": "undrift.contract.task",
    "Method": "undrift.contract.compose",
    "Result": "undrift.experiment.result",
    "advise": "undrift.advice.advisor",
    "compare": "undrift.study.compare",
    "federate": "undrift.federation.dealing",
    "load": "undrift.experiment.resume",
    "method": "undrift.methods.naming",
    "resume": "undrift.experiment.resume",
    "run": "undrift.experiment.runner",
}
MODULES = {
    **{name: "undrift.methods" for name in ("combine", "objectives", "personalize", "private", "sampling", "scores",
                                            "server", "upload", "weighting")},
    **{name: "undrift.federation.environment" for name in ("augment", "domains", "faults", "noise")},
    **{name: "undrift" for name in ("data", "models", "tasks", "testing")},
    "declare": "undrift.contract",
    "partition": "undrift.federation",
    "parts": "undrift.contract",
    "selection": "undrift.round",
}  # fmt: skip
__all__ = [
    "Columns", "Federation", "Method", "Ragged", "Result", "Task",
    "advise", "combine", "compare", "federate", "load", "method", "noise", "objectives", "partition",
    "personalize", "private", "resume", "run", "sampling", "selection", "server", "tasks", "upload", "weighting",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS_AND_CLASSES:
        return getattr(importlib.import_module(FUNCTIONS_AND_CLASSES[name]), name)
    if name in MODULES:
        return importlib.import_module(f"{MODULES[name]}.{name}")
    raise AttributeError(f"module 'undrift' has no attribute {name!r}")
