"""What a module holds, and a copy of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import nn

Scratch = tuple[str, str, torch.Tensor | None]  # module, name and value of a buffer that is not in the state dict


def module_copy(module: nn.Module, instead: Mapping[int, torch.Tensor] | None = None) -> nn.Module:
    """A deep copy. `instead` has by id what the copy holds in place of a tensor.

    Old-style weight_norm, spectral_norm and pruning keep the weight that the last pass computed as a plain
    attribute with a graph, which torch does not copy; the next pass computes it anew, so a value without graph will do."""
    derived = [
        value
        for owner in module.modules()
        for value in vars(owner).values()
        if isinstance(value, torch.Tensor) and value.grad_fn is not None
    ]
    return copy.deepcopy(module, {**{id(value): value.detach().clone() for value in derived}, **(instead or {})})


def hollow_copy(module: nn.Module) -> nn.Module:
    """A copy with empty tensors in place of the frozen parameters."""
    frozen = [parameter for parameter in module.parameters() if not parameter.requires_grad]
    return module_copy(
        module, {id(p): nn.Parameter(torch.empty(0, dtype=p.dtype), requires_grad=False) for p in frozen}
    )


def filled(module: nn.Module, frozen: Mapping[str, torch.Tensor]) -> nn.Module:
    """The module of `hollow_copy` with its frozen parameters again, which are not copied."""
    parameters = dict(module.named_parameters())
    for name, value in frozen.items():
        parameters[name].data = value
    return module


def to_float32(module: nn.Module) -> None:
    """Hold trained parameters and buffers as float32; frozen parameters keep their dtype."""
    for parameter in module.parameters():
        if parameter.requires_grad and parameter.is_floating_point():
            parameter.data = parameter.data.float()
    for owner in module.modules():
        for name, buffer in owner._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                owner._buffers[name] = buffer.float()


def other_floats(module: nn.Module) -> dict[str, str]:
    """The real floating parameters and buffers that are not float32, by name, and what they are."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {
        name: str(tensor.dtype).removeprefix("torch.")
        for name, tensor in tensors
        if tensor.is_floating_point() and tensor.dtype != torch.float32
    }


def persistent_buffers(module: nn.Module) -> tuple[list[tuple[str, torch.Tensor]], list[tuple[str, torch.Tensor]]]:
    """(floating, integer) buffers that belong to the state dict, each storage once."""
    floating: list[tuple[str, torch.Tensor]] = []
    integer: list[tuple[str, torch.Tensor]] = []
    seen: set[int] = set()
    for prefix, owner in module.named_modules():
        for name, buffer in owner._buffers.items():
            if buffer is None or name in owner._non_persistent_buffers_set or id(buffer) in seen:
                continue
            seen.add(id(buffer))
            full = f"{prefix}.{name}" if prefix else name
            (floating if buffer.is_floating_point() or buffer.is_complex() else integer).append((full, buffer))
    return floating, integer


def scratch_buffers(module: nn.Module) -> list[Scratch]:
    """The buffers that are not in the state dict, with copies of their values."""
    return [
        (path, name, None if buffer is None else buffer.detach().clone())
        for path, owner in module.named_modules()
        for name, buffer in owner._buffers.items()
        if name in owner._non_persistent_buffers_set and not nn.parameter.is_lazy(buffer)
    ]


def put_back(buffers: dict[str, torch.Tensor | None], name: str, value: torch.Tensor | None) -> None:
    """Give a buffer its initial value. It is written in place where it can be: modules may share it."""
    now = buffers[name]
    if value is None or now is None or now.shape != value.shape or now.dtype != value.dtype or now.requires_grad:
        buffers[name] = None if value is None else value.clone()
    else:
        now.copy_(value)
