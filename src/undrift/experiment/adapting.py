"""The network of a run before it becomes a vector: its adapters (`--adapt`), and what the method does not train."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import nn

from undrift.core.architecture import architecture
from undrift.core.errors import BadRequest
from undrift.core.references import reason
from undrift.core.words import clipped
from undrift.experiment.options import Options
from undrift.federation import images
from undrift.federation.federation import Federation
from undrift.models.adapt import adapter_of


def adapted(module: nn.Module, options: Options, federation: Federation) -> tuple[nn.Module, Path | None]:
    """(the module with its adapters, the file of `--init` that is still to be read). A file with the names of the module
    itself is the base: it is read before the adapters are added."""
    init = None if options.init is None else Path(options.init)
    if options.adapt is None:
        return module, init
    adapter = adapter_of(options.adapt)
    try:
        head = architecture(module, images.network_input(federation.x[:2]))[2]  # lazy layers get their shapes
    except BadRequest:
        raise
    except Exception as error:
        raise BadRequest(
            f"the model cannot take {federation.name}'s samples of shape {federation.shape}: {reason(error)}"
        ) from error
    if init is not None and set(state := read_tensors(init)) == set(module.state_dict()):
        load(module, state, init)
        init = None
    return adapter(module, head), init


def load(module: nn.Module, state: dict[str, torch.Tensor], path: Path) -> None:
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise BadRequest(f"{path} does not fit the model: {' '.join(str(error).split())[:200]}") from None


def freeze(module: nn.Module, patterns: Sequence[str]) -> None:
    """Take what fits a pattern out of training."""
    for name, parameter in module.named_parameters():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The state dict in a safetensors file."""
    import safetensors.torch

    try:
        return safetensors.torch.load_file(path)
    except FileNotFoundError:
        raise BadRequest(f"there is no file {clipped(str(path), 200)}; --init takes a .safetensors file") from None
    except Exception as error:
        raise BadRequest(
            f"{path} is not a safetensors file: {error}; save the state dict with safetensors.torch.save_file"
        ) from None
