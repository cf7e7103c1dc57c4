"""What a worker needs to be a site, sent once: plan, data, network. Large tensors travel through the arena."""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch

from undrift.core.vector import Flat
from undrift.round.runtime import Runtime


def runtime_payload(runtime: Runtime) -> dict[str, Any]:
    module = copy.deepcopy(runtime.model.twin().module)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.data = parameter.data.clone()  # a view would drag the whole vector along, once per parameter
        for child in module.modules():
            for name, buffer in child._buffers.items():
                if buffer is not None:
                    child._buffers[name] = buffer.clone()
    rows = runtime.federation.x[:2]
    return {
        "path": sys.path, "plan": runtime.plan, "federation": runtime.federation, "module": module,
        "sample": runtime.network_input(rows).clone(), "initial": runtime.initial.cpu(), "loss": runtime.loss, "augment": runtime.augment,
        "device": str(runtime.model.device), "metrics": runtime.own_metrics, "diagnostics": runtime.diagnostics, "ood": runtime.ood,
    }  # fmt: skip


def open_runtime(content: dict[str, Any]) -> Runtime:
    sys.path[:] = [*sys.path, *[place for place in content["path"] if place not in sys.path]]
    flat = Flat(content["module"], content["sample"], content["device"])
    flat.load(content["initial"])
    runtime = Runtime(content["plan"], content["federation"], flat, content["loss"], content["augment"], content["metrics"],
                content["diagnostics"], content["ood"])  # fmt: skip
    runtime.initial = content["initial"].clone()
    return runtime
