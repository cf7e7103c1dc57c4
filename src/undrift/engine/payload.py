"""What a worker needs to be a site, sent once: plan, data, network. Large tensors travel through the arena."""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch

from undrift.site import Site
from undrift.vector import Flat


def site_payload(site: Site) -> dict[str, Any]:
    module = copy.deepcopy(site.model.twin().module)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.data = parameter.data.clone()  # a view would drag the whole vector along, once per parameter
        for child in module.modules():
            for name, buffer in child._buffers.items():
                if buffer is not None:
                    child._buffers[name] = buffer.clone()
    rows = site.federation.x[:2]
    return {
        "path": sys.path, "plan": site.plan, "federation": site.federation, "module": module,
        "sample": site.network(rows).clone(), "initial": site.initial.cpu(), "loss": site.loss, "augment": site.augment,
        "device": str(site.model.device), "metrics": site.own_metrics, "diagnostics": site.diagnostics,
    }  # fmt: skip


def open_site(content: dict[str, Any]) -> Site:
    sys.path[:] = [*sys.path, *[place for place in content["path"] if place not in sys.path]]
    flat = Flat(content["module"], content["sample"], content["device"])
    flat.load(content["initial"])
    site = Site(content["plan"], content["federation"], flat, content["loss"], content["augment"], content["metrics"],
                content["diagnostics"])  # fmt: skip
    site.initial = content["initial"].clone()
    return site
