"""What one forward pass shows about a network: its layers in order, its head, its normalisations."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from undrift.core.errors import BadRequest
from undrift.core.frozen import frozen_of
from undrift.core.modules import Scratch, other_floats, scratch_buffers, to_float32
from undrift.core.samples import mapped

NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)


Architecture = tuple[tuple[tuple[str, str], ...], frozenset[str], str | None, bool]


def examined(
    module: nn.Module, sample: Any, device: torch.device | str
) -> tuple[nn.Module, list[Scratch], list[str], Architecture]:
    """(the module on its device, its buffers outside the state dict, notes, what one forward pass shows). Trained
    parameters and buffers are held as float32. Frozen parameters keep their dtype if the network can run so."""
    others = other_floats(module)
    if kept := set(others) & set(frozen_of(module)):
        to_float32(module)
        module = module.to(device)
        scratch = scratch_buffers(module)
        try:
            return module, scratch, notes_on(others, kept), architecture(module, sample.to(device))
        except RuntimeError:  # inputs of one dtype meet weights of another
            pass
    module = (module.float() if others else module).to(device)
    scratch = scratch_buffers(module)
    return module, scratch, notes_on(others, set()), architecture(module, sample.to(device))


def notes_on(others: dict[str, str], kept: set[str]) -> list[str]:
    return [f"{name} was {kind} and is held as float32" for name, kind in others.items() if name not in kept]


def architecture(module: nn.Module, sample: Any) -> Architecture:
    """One forward pass in eval mode: leaf modules in order of execution, normalisations, the head, and whether a
    batch of one sample would leave BatchNorm with a single value per channel."""
    order: list[tuple[str, nn.Module, torch.Tensor | None]] = []
    batchnorm_needs_two = False

    def recorder(name: str) -> Any:
        def hook(child: nn.Module, args: tuple[Any, ...], out: Any) -> None:
            nonlocal batchnorm_needs_two
            order.append((name, child, out if isinstance(out, torch.Tensor) else None))
            if isinstance(child, nn.modules.batchnorm._BatchNorm) and args[0].numel() == len(args[0]) * args[0].size(1):
                batchnorm_needs_two = True

        return hook

    leaves = [(n, m) for n, m in module.named_modules() if not any(True for _ in m.children())]
    handles = [leaf.register_forward_hook(recorder(name)) for name, leaf in leaves]
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            sample = mapped(sample, torch.nan_to_num)  # NaN equals nothing, and no head would be found
            out = module(sample) if isinstance(sample, torch.Tensor) else module(**sample)
    finally:
        for handle in handles:
            handle.remove()
        module.train(was_training)
    logits = out if isinstance(out, torch.Tensor) else getattr(out, "logits", None)
    if not isinstance(logits, torch.Tensor):
        raise BadRequest(
            f"the model {type(module).__name__} returns {type(out).__name__}; it must return a tensor of logits, or an "
            "object that has them as .logits"
        )
    head = None
    for name, child, value in reversed(order):
        linear = isinstance(child, nn.Linear) or (isinstance(child, nn.Conv2d) and child.kernel_size == (1, 1))
        if linear and value is not None and value.numel() == logits.numel() and value.size(0) == logits.size(0):
            # With old-style weight_norm or pruning the weight is computed from other tensors: parts that need the
            # head's own weight refuse such a model.
            own = name.rpartition(".")[2] != "base_layer"  # of an adapter that adds to it, at first nothing
            if own and torch.equal(value.flatten(), logits.flatten()) and "weight" in child._parameters:
                head = name
            break
    norms = frozenset(name for name, child, _ in order if isinstance(child, NORMS))
    return tuple((name, type(child).__name__) for name, child, _ in order), norms, head, batchnorm_needs_two
