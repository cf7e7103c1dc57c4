"""The parameters of a network that are not trained (`requires_grad=False`): its base.

They are no part of the vector. A process holds them once, each in its own dtype, and all copies of the network use the
same ones. Worker processes map them read-only. Nothing that travels, is kept or is resumed contains them: a hash names
them instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


class Frozen:
    """The frozen parameters by name, and their hash."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.parameters = dict(parameters)
        for parameter in self.parameters.values():
            parameter.data = parameter.data.contiguous()  # as workers get it: other strides could give other bits
        self.seal()

    def seal(self) -> None:
        """Take the values as they are now for those of the run."""
        self._digest: str | None = None  # computed when it is asked for
        self._sealed = [(name, p, p._version) for name, p in self.parameters.items()]

    @property
    def digest(self) -> str:
        """SHA-256 over names, dtypes, shapes and values, in the order of the names; "" without frozen parameters."""
        if self._digest is None:
            self._digest = digest_of(self.tensors())
        return self._digest

    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: parameter.data for name, parameter in self.parameters.items()}

    def written(self) -> str | None:
        """The name of a parameter that was written since `seal`, if there is one."""
        return next((name for name, parameter, version in self._sealed if parameter._version != version), None)

    def take(self, values: Mapping[str, torch.Tensor], digest: str | None = None) -> None:
        """Let these tensors be the values, uncopied. All copies of the network follow."""
        for name, parameter in self.parameters.items():
            parameter.data = values[name].to(parameter.device)
        self.seal()
        self._digest = digest


def digest_of(tensors: Mapping[str, torch.Tensor]) -> str:
    """The hash of named tensors. An empty dict has none."""
    if not tensors:
        return ""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        total.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        values: Any = tensor.reshape(-1).view(torch.uint8).numpy()
        total.update(values)
    return total.hexdigest()


def frozen_of(module: nn.Module) -> dict[str, nn.Parameter]:
    """The frozen parameters of a module by name, each once."""
    return {name: parameter for name, parameter in module.named_parameters() if not parameter.requires_grad}
