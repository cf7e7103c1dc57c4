"""A network for a stack of clients: parameters [clients, …], samples [clients, rows, …], logits [clients, rows, classes].

A chain of known layers runs as batched products. Any other module made of such layers runs through `torch.func.vmap`.
linear.py says how a linear layer rounds alike for every client.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from undrift.core.vector import Flat
from undrift.core.words import in_short
from undrift.round.lockstep.leaves import Leaves, leaves_of, places_of
from undrift.round.lockstep.linear import ALIGN, StackedLinear, rounded
from undrift.round.lockstep.norm import Norm, StackedNorm, norm_of

PLACES = 5  # of a stack, at which a network is tried out
Share = torch.Tensor | None  # the samples' weights in a batch's mean, while training
Layer = Callable[[Leaves, torch.Tensor, Share], torch.Tensor]

ELEMENTWISE = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.Softplus,
    nn.Softsign, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.Identity, nn.Tanhshrink, nn.LogSigmoid,
)  # fmt: skip
KNOWN = (nn.Linear, nn.Flatten, nn.Embedding, nn.LayerNorm, nn.GroupNorm, *ELEMENTWISE)


class Unstackable(Exception):
    """Why a network cannot be stacked, as a sentence about one of its modules."""


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


class Mapped:
    """Any module made of known layers, through `vmap`."""

    kind = "vmap"
    features: torch.Tensor | None = None

    def __init__(self, flat: Flat) -> None:
        for name, module in flat.module.named_modules():
            if not any(True for _ in module.children()):
                refuse_leaf(name, module)
        self.names = [entry.name for entry in flat.layout.entries if entry.kind == "parameter"]
        self.head_places = head_places(flat)
        module = flat.module

        def forward(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            out = torch.func.functional_call(module, parameters, (x,))
            return out if isinstance(out, torch.Tensor) else out.logits

        self.mapped = torch.func.vmap(forward)

    def __call__(self, leaves: Leaves, x: torch.Tensor, share: Share = None) -> torch.Tensor:
        found: torch.Tensor = self.mapped(dict(zip(self.names, leaves, strict=True)), x)
        return found


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


def refuse_leaf(name: str, module: nn.Module) -> None:
    """Only layers whose stacked form is known to round alike for every client."""
    label = f"{type(module).__name__}{f' ({name})' if name else ''}"
    refuse_hooks(name, module)
    if isinstance(module, nn.modules.dropout._DropoutNd) and module.p == 0:
        return
    if isinstance(module, nn.modules.dropout._DropoutNd):
        raise Unstackable(f"the module {label} draws random numbers, which belong to one client")
    if isinstance(module, nn.modules.batchnorm._NormBase):
        raise Unstackable(f"the module {label} keeps statistics of one client")
    if type(module) not in KNOWN:
        raise Unstackable(f"the module {label} has no stacked form")
    if isinstance(module, nn.Linear) and 1 in (module.in_features, module.out_features):
        raise Unstackable(f"the module {label} has one input or output, and rounds by the number of clients")
    if isinstance(module, nn.Embedding) and (module.padding_idx is not None or module.max_norm or module.sparse):
        raise Unstackable(f"the module {label} has a padding index, a largest norm or sparse gradients")


def stacked_layer(name: str, module: nn.Module, places: dict[int, int], samples: int | None) -> Layer:
    """A layer as a function of all clients' parameters and samples."""
    if type(module) is nn.BatchNorm1d and (norm := norm_of(module, places)) is not None:
        refuse_hooks(name, module)
        return batch_norm(norm)
    refuse_leaf(name, module)
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
    return lambda _, x, __: module(x)


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


def stacked_network(flat: Flat, sample: torch.Tensor, samples: int | None = None) -> Stacked:
    """The network for stacks of batches of so many samples, tried out; `Unstackable` where there is none."""
    if not all(parameter.requires_grad for parameter in flat.module.parameters()):
        raise Unstackable("the model has frozen parameters")
    found: Stacked
    try:
        found = Products(flat, samples)
    except Unstackable:
        if type(flat.module) is nn.Sequential or not any(True for _ in flat.module.children()):
            raise
        found = Mapped(flat)
    norms = sum(type(module) is nn.BatchNorm1d for module in flat.module.modules())
    if sum(1 for _ in flat.module.buffers()) != 3 * norms:  # a mean, a variance and a count of batches for each
        raise Unstackable("the model has buffers, which belong to one client")
    tried(found, flat, sample)
    return found


def tried(network: Stacked, flat: Flat, sample: torch.Tensor) -> None:
    """Refuse a stacked network that does not give what the module gives, or gives other bits at another place."""
    name, rows = type(flat.module).__name__, aligned_rows(flat, sample, len(sample))
    x = sample.repeat(-(-rows // len(sample)), *[1] * (sample.dim() - 1))[:rows]
    stack = torch.zeros(PLACES, rounded(flat.layout.nP), device=flat.device)
    stack[:, : flat.layout.nP] = flat.P
    statistics = flat.vector[flat.layout.nP :].repeat(PLACES, 1)
    leaves = leaves_of(flat.layout, stack, statistics)
    draws, kept = torch.Generator().manual_seed(0), flat.kept()
    was = flat.module.training
    flat.module.train()
    try:
        share = torch.full((PLACES, rows), 1 / rows, device=flat.device)
        logits = network(leaves, x.expand(PLACES, *x.shape).contiguous(), share)
        wanted = flat(x)
        weights = torch.randn(wanted.shape, generator=draws).to(flat.device)
        grads = torch.autograd.grad((logits * weights).sum(), leaves[: len(flat.parameters)], allow_unused=True)
    except Exception as error:
        raise Unstackable(f"the model {name} cannot be stacked: {in_short(error)}") from error
    finally:
        flat.load(*kept)
        flat.module.train(was)
    if logits.dim() != 3 or not torch.allclose(logits[0], wanted, rtol=1e-3, atol=1e-4):
        raise Unstackable(f"the model {name} gives other logits when it is stacked")
    same = all(
        torch.equal(one[0], one[at])
        for one in (logits, statistics, *grads)
        if one is not None
        for at in range(1, PLACES)
    )
    if not same:
        raise Unstackable(f"the model {name} rounds differently at another place of a stack")


def widths(flat: Flat, sample: torch.Tensor) -> list[int]:
    """How many numbers a sample is, after each of the network's layers."""
    found = [sample[0].numel()]
    handles = [
        module.register_forward_hook(lambda _, __, out: found.append(out[0].numel()) if torch.is_tensor(out) else None)
        for module in flat.module.modules()
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
