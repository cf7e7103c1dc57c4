"""`batch.sample_gradients()`: one gradient per sample, for parts such as DP-SGD.

All samples at once by `torch.func`. A network that it does not take runs sample by sample.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.func import functional_call, grad, vmap

from undrift.contract.context import Batch
from undrift.round.runtime import Runtime


class SampleGradients:
    """For one client's training: from a batch to [samples, nP]."""

    def __init__(self, runtime: Runtime) -> None:
        self.model, self.loss = runtime.model, runtime.loss
        self.names = [entry.name for entry in self.model.layout.entries if entry.kind == "parameter"]
        self.together = True

    def __call__(self, batch: Batch) -> torch.Tensor:
        if self.together and isinstance(batch.x, torch.Tensor) and isinstance(batch.y, torch.Tensor):
            try:
                return self.at_once(batch)
            except RuntimeError:  # an operation without a batching rule
                self.together = False
        rows = torch.empty(len(batch.y), len(self.model.P), device=self.model.device)
        for i, row in enumerate(rows):
            self.model.gradient(self.loss(self.model(batch.x[i : i + 1]), batch.y[i : i + 1]).sum(), into=row)
        return rows

    def at_once(self, batch: Batch) -> torch.Tensor:
        parameters = {name: p.detach() for name, p in zip(self.names, self.model.parameters, strict=True)}

        def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            out: Any = functional_call(self.model.module, parameters, (x[None],))
            logits = out if isinstance(out, torch.Tensor) else out.logits
            return self.loss(logits, y[None]).sum()

        found = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(parameters, batch.x, batch.y)
        return torch.cat([found[name].flatten(1) for name in self.names], dim=1)
