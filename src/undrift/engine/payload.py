"""What a worker needs to build its `Runtime`, sent once: plan, data, network. Large tensors go through the arena.
Frozen parameters are apart from the network's module: workers map them read-only."""

from __future__ import annotations

import sys
from typing import Any

import torch

from undrift.core.modules import filled, hollow_copy
from undrift.core.samples import mapped
from undrift.core.vector import Flat
from undrift.round.runtime import Runtime


def runtime_payload(runtime: Runtime) -> dict[str, Any]:
    """The runtime's contents, ready to be pickled."""
    module = hollow_copy(runtime.model.twin().module)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.data = (
                parameter.data.cpu().clone()
            )  # a view would be pickled with the whole vector, once per parameter
        for child in module.modules():
            for name, buffer in child._buffers.items():
                if buffer is not None:
                    child._buffers[name] = buffer.cpu().clone()
    rows = runtime.federation.x[:2]
    return {
        "path": sys.path,
        "plan": runtime.plan,
        "federation": runtime.federation,
        "module": module,
        "frozen": runtime.model.frozen.tensors(),
        "sample": mapped(runtime.network_input(rows), torch.clone),
        "initial": runtime.initial.cpu(),
        "loss": runtime.loss,
        "augment": runtime.augment,
        "device": str(runtime.model.device),
        "metrics": runtime.own_metrics,
        "diagnostics": runtime.diagnostics,
        "ood": runtime.ood,
    }


def open_runtime(content: dict[str, Any]) -> Runtime:
    """The runtime of a worker, from `runtime_payload`."""
    sys.path[:] = [*sys.path, *[place for place in content["path"] if place not in sys.path]]
    module = filled(content["module"], content["frozen"])
    flat = Flat(module, content["sample"], content["device"])
    flat.load(content["initial"])
    names = ("loss", "augment", "metrics", "diagnostics", "ood")
    runtime = Runtime(content["plan"], content["federation"], flat, *(content[name] for name in names))
    runtime.initial = content["initial"].to(flat.device)  # mapped: all workers on a processor share one
    return runtime
