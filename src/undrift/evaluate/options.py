"""What a run's options ask of evaluation: your own metrics, diagnostics, and another data set for out-of-distribution detection."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from undrift import data
from undrift.contract.task import Task
from undrift.core import text
from undrift.core.errors import BadRequest
from undrift.core.in_place import call_on_copies
from undrift.core.references import answer
from undrift.core.user_code import user_function
from undrift.evaluate.diagnose import NO_MODEL_NEEDED, Diagnostic, named
from undrift.evaluate.metrics import MetricFunction, metrics
from undrift.federation import images
from undrift.federation.federation import Federation
from undrift.round.runtime import Runtime


def own_metrics(given: Any, logits: torch.Tensor, y: Any, task: Task) -> dict[str, MetricFunction]:
    """The user's metrics by name: `package:function,…`, a function, a list of functions, or {name: function}. Each is
    tried on the logits and labels of two samples."""
    if given is None:
        return {}
    if isinstance(given, str):
        given = [user_function("metric", call) for call in text.parse_list(given)]
    several = given if isinstance(given, (list, tuple, dict)) else [given]
    found = dict(several) if isinstance(several, dict) else {getattr(f, "__name__", "metric"): f for f in several}
    logits, y = logits.cpu(), y.cpu()
    ours = metrics(logits, y, task)
    for name, function in found.items():
        if name in ours:
            raise BadRequest(f"the metric {name} is one of Undrift's own; give yours another name")
        answer("metric", function, is_number, "one number for (logits, y)", logits, y, call=call_on_copies)
    return found


def is_number(value: Any) -> bool:
    float(value)  # what it raises is reported with the metric's name
    return not isinstance(value, str)


def diagnostics(given: Any, runtime: Runtime) -> tuple[Diagnostic, ...]:
    """The diagnostics asked for; another data set (`--ood NAME`) brings its own."""
    found = named(given, runtime.ood is not None)
    for one in found:
        if runtime.plan.private is not None and one.name not in NO_MODEL_NEEDED:
            raise BadRequest(
                f"the diagnostic {one.name} looks at the global model, and with private entries none exists"
            )
        task = runtime.plan.task
        if "labels" in one.needs and "labels" not in task.provides:
            raise BadRequest(
                f"the diagnostic {one.name} needs one class per sample, which {task.name} does not have; leave it out"
            )
        one.check(runtime)
    return tuple(found)


def other_set(given: Any, federation: Federation) -> tuple[str, torch.Tensor] | None:
    """(name, test samples of another data set, standardised as the federation's own), where one is asked for."""
    if given is None:
        return None
    source = data.load(given) if isinstance(given, str) else given
    name = given if isinstance(given, str) else source.name
    if name == federation.name:
        raise BadRequest(f"--ood {name} is the data set the run trains on; name another one")
    if source.shape != federation.shape:
        fits = [
            other for other in data.names() if other != federation.name and data.about(other).shape == federation.shape
        ]
        hint = f"; {', '.join(fits)} have that shape" if fits else ""
        raise BadRequest(
            f"--ood {name} has samples of shape {source.shape} and {federation.name} of {federation.shape}{hint}"
        )
    x = source.x_test if len(source.x_test) else source.x_train
    if federation.scale is None:
        rows = images.stored(source.standardised(x))
    else:
        mean, std = (torch.tensor(np.asarray(v), dtype=torch.float32) for v in federation.scale)
        rows = (images.stored(source.scaled(x)) - mean) / std  # channels and columns come last
    if torch.equal(rows, federation.test_x):
        raise BadRequest(f"--ood {name} holds the very samples the run is tested on; name another data set")
    return name, rows
