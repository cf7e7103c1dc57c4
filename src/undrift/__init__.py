"""Undrift: federated learning that holds on data that is not alike."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from undrift import combine, objectives, partition, personalize, private, sampling, selection, server, weighting
    from undrift.compose import Method, method
    from undrift.environment import noise
    from undrift.federation import Federation, federate
    from undrift.reopen import load, resume
    from undrift.result import Result
    from undrift.runner import run
    from undrift.study.compare import compare

# Names are imported when they are first used: `undrift --version` should not wait for torch.
HOMES = {
    "Federation": "undrift.federation", "compare": "undrift.study.compare", "Method": "undrift.compose", "Result": "undrift.result",
    "federate": "undrift.federation", "load": "undrift.reopen", "method": "undrift.compose", "resume": "undrift.reopen",
    "run": "undrift.runner",
}  # fmt: skip
PACKAGES = (
    "combine", "data", "declare", "models", "objectives", "partition", "parts", "personalize", "private", "sampling",
    "scores", "selection", "server", "testing", "weighting",
)  # fmt: skip
__all__ = [
    "Federation", "Method", "Result", "combine", "compare", "federate", "load", "method", "noise", "objectives", "partition",
    "personalize", "private", "resume", "run", "sampling", "selection", "server", "weighting",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in HOMES:
        return getattr(importlib.import_module(HOMES[name]), name)
    if name in ("noise", "faults", "domains", "augment"):
        return importlib.import_module(f"undrift.environment.{name}")
    if name in PACKAGES:
        return importlib.import_module(f"undrift.{name}")
    raise AttributeError(f"module 'undrift' has no attribute {name!r}")
