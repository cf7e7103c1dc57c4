"""A network for a stack of clients: parameters [clients, …], samples [clients, rows, …], logits [clients, rows, classes].

A chain of known layers runs as batched products, any other network through `torch.func.vmap` (mapped.py). linear.py says
how a linear layer rounds alike for every client.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from undrift.core.vector import Flat
from undrift.round.lockstep.leaves import Leaves, Unstackable, places_of
from undrift.round.lockstep.linear import ALIGN, StackedLinear
from undrift.round.lockstep.mapped import Mapped
from undrift.round.lockstep.norm import Norm, StackedNorm, norm_of

Share = torch.Tensor | None  # the samples' weights in a batch's mean, while training
Layer = Callable[[Leaves, torch.Tensor, Share], torch.Tensor]

ELEMENTWISE = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.Softplus,
    nn.Softsign, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.Identity, nn.Tanhshrink, nn.LogSigmoid,
)  # fmt: skip
KNOWN = (nn.Linear, nn.Flatten, nn.Embedding, nn.LayerNorm, nn.GroupNorm, *ELEMENTWISE)


class Products:
    """A chain of known layers as batched products. `samples`: the rows of a batch that count, where fewer than all do."""

    kind = "batched products"

    def __init__(self, flat: Flat, samples: int | None = None) -> None:
        places = places_of(flat)
        self.layers: list[tuple[str, Layer]] = [
            (name, stacked_layer(name, module, places, samples)) for name, module in chain("", flat.module)
        ]
        self.head = flat.layout.head
        self.head_places = head_places(flat)
        self.features: torch.Tensor | None = None

    def __call__(self, leaves: Leaves, x: torch.Tensor, share: Share = None) -> torch.Tensor:
        for name, layer in self.layers:
            if name == self.head:
                self.features = x
            x = layer(leaves, x, share)
        return x


Stacked = Products | Mapped


def chain(name: str, module: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers of nested `Sequential`s, in order."""
    if type(module) is not nn.Sequential:
        return [(name, module)]
    refuse_hooks(name, module)
    return [
        layer for key, child in module._modules.items() if child for layer in chain(f"{name}.{key}".lstrip("."), child)
    ]


def refuse_hooks(name: str, module: nn.Module) -> None:
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
        raise Unstackable(f"the module {name or type(module).__name__} has hooks")


def label(name: str, module: nn.Module) -> str:
    return f"{type(module).__name__}{f' ({name})' if name else ''}"


def refuse_leaf(name: str, module: nn.Module) -> None:
    """No stack has layers whose random numbers, statistics or side effects belong to one client."""
    refuse_hooks(name, module)
    if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
        raise Unstackable(f"the module {label(name, module)} draws random numbers, which belong to one client")
    if isinstance(module, nn.modules.batchnorm._NormBase):
        raise Unstackable(f"the module {label(name, module)} keeps statistics of one client")
    if isinstance(module, nn.Embedding) and (module.max_norm or module.sparse):
        raise Unstackable(f"the module {label(name, module)} has a largest norm or sparse gradients")


def unknown_leaf(name: str, module: nn.Module) -> str:
    """Why a layer is not known to round alike for every client; empty where it is."""
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return ""
    if type(module) not in KNOWN:
        return f"the module {label(name, module)} has no stacked form"
    if isinstance(module, nn.Linear) and 1 in (module.in_features, module.out_features):
        return f"the module {label(name, module)} has one input or output, and rounds by the number of clients"
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        return f"the module {label(name, module)} has a padding index"
    return ""


def stacked_layer(name: str, module: nn.Module, places: dict[int, int], samples: int | None) -> Layer:
    """A layer as a function of all clients' parameters and samples."""
    if type(module) is nn.BatchNorm1d and (norm := norm_of(module, places)) is not None:
        refuse_hooks(name, module)
        return batch_norm(norm)
    refuse_leaf(name, module)
    if reason := unknown_leaf(name, module):
        raise Unstackable(reason)
    weight, bias = (places.get(id(getattr(module, key, None))) for key in ("weight", "bias"))
    if isinstance(module, nn.Linear):
        return linear(weight, bias, samples)
    if isinstance(module, nn.Embedding):
        return embedding(weight)
    if isinstance(module, nn.Flatten):
        return flatten(module.start_dim, module.end_dim)
    if isinstance(module, nn.LayerNorm):
        shape, eps = list(module.normalized_shape), module.eps
        return affine(lambda x: F.layer_norm(x, shape, eps=eps), weight, bias, len(shape))
    if isinstance(module, nn.GroupNorm):
        groups, eps = module.num_groups, module.eps
        return affine(lambda x: F.group_norm(x.flatten(0, 1), groups, eps=eps).view_as(x), weight, bias, 0)
    act = copy.copy(module)  # never in place: a layer's inputs are needed for its gradient
    if getattr(act, "inplace", False):
        act.inplace = False  # type: ignore[assignment]
    return lambda _, x, __: act(x)


def batch_norm(norm: Norm) -> Layer:
    def layer(leaves: Leaves, x: torch.Tensor, share: Share) -> torch.Tensor:
        if share is None:
            return norm.evaluated(leaves, x.transpose(1, 2)).transpose(1, 2)
        weight, bias = (None if place is None else leaves[place] for place in (norm.weight, norm.bias))
        out: torch.Tensor = StackedNorm.apply(norm, leaves, share, x, weight, bias)  # type: ignore[no-untyped-call]
        return out

    return layer


def linear(weight: int | None, bias: int | None, samples: int | None) -> Layer:
    def layer(leaves: Leaves, x: torch.Tensor, share: Share) -> torch.Tensor:
        assert weight is not None
        b = None if bias is None else leaves[bias]
        rows = x.flatten(1, -2)
        out: torch.Tensor = StackedLinear.apply(rows, leaves[weight], b, samples if x.dim() == 3 else None)  # type: ignore[no-untyped-call]
        return out if x.dim() == 3 else out.view(*x.shape[:-1], out.size(-1))

    return layer


def embedding(weight: int | None) -> Layer:
    def layer(leaves: Leaves, x: torch.Tensor, share: Share) -> torch.Tensor:
        assert weight is not None
        if x.device.type == "cpu" and bool((x < 0).any()):  # it would count from the end; a device refuses by itself
            raise IndexError("a word's number is below 0")
        client = torch.arange(len(x), device=x.device).view(-1, *[1] * (x.dim() - 1))
        return leaves[weight][client, x]

    return layer


def flatten(start: int, end: int) -> Layer:
    if start == 0:
        raise Unstackable("a Flatten that joins samples has no stacked form")
    first, last = (dim + 1 if dim >= 0 else dim for dim in (start, end))
    return lambda _, x, __: x.flatten(first, last)


def affine(norm: Callable[[torch.Tensor], torch.Tensor], weight: int | None, bias: int | None, trailing: int) -> Layer:
    """A normalisation, then every client's own scale and shift. `trailing`: how many last dimensions they have; 0: channels,
    which are the third dimension."""

    def layer(leaves: Leaves, x: torch.Tensor, share: Share) -> torch.Tensor:
        out = norm(x)
        for place, act in ((weight, torch.mul), (bias, torch.add)):
            if place is not None:
                own = leaves[place]
                ones = x.dim() - 1 - trailing if trailing else 1
                shape = (len(x), *[1] * ones, *own.shape[1:]) if trailing else (len(x), 1, -1, *[1] * (x.dim() - 3))
                out = act(out, own.view(shape))
        return out

    return layer


def head_places(flat: Flat) -> tuple[int, int | None] | None:
    """Where the head's weight and bias are among the parameters."""
    if flat.layout.head is None:
        return None
    module = flat.module.get_submodule(flat.layout.head)
    places = {id(parameter): place for place, parameter in enumerate(flat.parameters)}
    weight, bias = (places.get(id(getattr(module, key, None))) for key in ("weight", "bias"))
    return None if weight is None or not isinstance(module, nn.Linear) else (weight, bias)


def widths(flat: Flat, sample: torch.Tensor) -> list[int]:
    """How many numbers a sample is, after each of the network's layers."""
    found = [sample[0].numel()]
    handles = [
        module.register_forward_hook(lambda _, __, out: found.append(out[0].numel()) if torch.is_tensor(out) else None)
        for module in flat.module.modules()
        if not isinstance(module, (nn.Sequential, nn.Flatten, nn.Identity))  # they make no new numbers
    ]
    was = flat.module.training
    flat.module.eval()
    try:
        with torch.no_grad():
            flat(sample[:1])
    finally:
        flat.module.train(was)
        for handle in handles:
            handle.remove()
    return found


def aligned_rows(flat: Flat, sample: torch.Tensor, rows: int) -> int:
    """The least number of rows, not below `rows`, at which every activation of a client is a multiple of `ALIGN`."""
    step = max(ALIGN // math.gcd(ALIGN, width) for width in widths(flat, sample) if width)
    return -(-rows // step) * step
