"""FedMA by matching: hidden units are put in a common order before they are averaged.

Wang et al.: Federated Learning with Matched Averaging, ICLR 2020.

The order of hidden units has no meaning, so two clients may hold the same network in different orders. Each client is
matched to the reference (the client with the most data), layer by layer in order of execution:

    permute the layer's inputs by the last assignment (channels; blocks of H·W columns after a flatten)
    assign its units to the reference's, Hungarian on ‖[w, b]_i − [w, b]^ref_j‖²
    apply the order to bias, norm parameters and statistics        then average with p_k

Class rows are never permuted. The trap: a residual sum ties the orders of several layers together, so such networks are
refused (recognised by a layer whose inputs are not the outputs of the one before). The original matches under a Beta
process, may grow layers and retrains after each layer. This is its matching step. Clients that start a round from a
common model hardly ever change order, so expect plain averaging then.

`variant="fednolowe"` is what FedNolowe's code calls FedMA: rows of every weight are matched to the first client's, each
tensor by itself, by the plain (not the squared) distance. Biases, norms and the input side stay as they are, and the rows of
the head are matched too, which may exchange classes. (The script leaves out heads called fc3, which its LeNet-5 has and its
CNN and VGG-9 have not. Here all are matched.) This is the authors' script, not a remedy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from undrift.contract.parts import Combine, Plan, Problem, Replies, Server, server_sum
from undrift.core.assign import assign
from undrift.core.vector import Entry, Layout

DENSE = ("Linear", "Conv1d", "Conv2d", "Conv3d")
NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LayerNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d")


@dataclass(frozen=True)
class FedMA(Combine):
    variant: Literal["matching", "fednolowe"] = "matching"

    def check(self, plan: Plan) -> Iterable[Problem]:
        if self.variant == "matching":
            try:
                chain(plan.layout)
            except NoChainError as why:
                yield Problem(
                    "error",
                    f"fedma matches units along a plain chain of layers, and {why}; use "
                    "fedma(variant=fednolowe) or another method",
                )

    def combine(self, server: Server, replies: Replies, weights: Sequence[float]) -> torch.Tensor:
        if self.variant == "fednolowe":
            reference, align = 0, rowwise
        else:
            reference, align = max(range(len(replies)), key=lambda k: replies.n[k]), aligned
        vectors = []
        for k, vector in enumerate(replies.vectors):
            moved = 0
            if k != reference:
                vector, moved = align(server.plan.layout, vector, replies.vectors[reference])
            server.note("moved", moved, client=replies.ids[k])
            vectors.append(vector)
        return server_sum(vectors, weights)


class NoChainError(Exception):
    """The network is not a plain chain of layers."""


@dataclass(frozen=True)
class Layer:
    """A layer with weights, and the norm entries between it and the next layer."""

    weight: Entry
    bias: Entry | None
    after: list[Entry] = field(default_factory=list)

    @property
    def units(self) -> int:
        return self.weight.shape[0]


def chain(layout: Layout) -> list[Layer]:
    """The layers in order of execution. Raises NoChainError if permuting the units of a layer cannot be undone by
    permuting the inputs of the next."""
    owned: dict[str, list[Entry]] = {}
    for entry in layout.entries:
        owned.setdefault(entry.module, []).append(entry)
    layers: list[Layer] = []
    seen: set[str] = set()
    frozen = {entry.module for entry in layout.frozen}
    for name, kind in layout.modules:
        if name in frozen and (layers or name in owned):  # layers before the first trained one do not matter
            raise NoChainError(f"{name} is frozen, so its inputs and units keep their order")
        if name not in owned:
            continue
        if name in seen:
            raise NoChainError(f"{name} runs twice in this model")
        seen.add(name)
        entries = {entry.name.rpartition(".")[2]: entry for entry in owned[name]}
        if kind in DENSE and set(entries) <= {"weight", "bias"} and "weight" in entries:
            layer = Layer(entries["weight"], entries.get("bias"))
            if layers and layer.weight.shape[1] % layers[-1].units:
                raise NoChainError(
                    f"{name} takes {layer.weight.shape[1]} inputs where the layer before it gives "
                    f"{layers[-1].units} (a residual or grouped network?)"
                )
            if layers and len(layer.weight.shape) > 2 and layer.weight.shape[1] != layers[-1].units:
                raise NoChainError(
                    f"the convolution {name} takes {layer.weight.shape[1]} channels where the layer "
                    f"before it gives {layers[-1].units} (a residual or grouped network?)"
                )
            layers.append(layer)
        elif kind in NORMS and layers and all(math.prod(e.shape) % layers[-1].units == 0 for e in entries.values()):
            layers[-1].after.extend(entries.values())
        else:
            raise NoChainError(f"{name} ({kind}) is neither a linear layer, a convolution nor a norm over their units")
    missing = sorted(set(owned) - seen)
    if missing:
        raise NoChainError(f"{missing[0] or 'the model itself'} holds parameters outside of layers")
    if not layers or (layout.head is not None and layers[-1].weight.module != layout.head):
        raise NoChainError("its last layer is not the one that gives the logits")
    return layers


def aligned(layout: Layout, vector: torch.Tensor, reference: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The same network with its hidden units in the reference's order, and how many units moved."""
    out, moved = vector.clone(), 0
    layers = chain(layout)
    order: torch.Tensor | None = None
    for layer in layers:
        if order is not None:
            permute(out, layer.weight, 1, order)
        if layer is layers[-1]:
            break  # class rows are never permuted
        order = assignment(rows(out, layer), rows(reference, layer))
        moved += int((order != torch.arange(len(order))).sum())
        for entry in (layer.weight, layer.bias, *layer.after):
            if entry is not None:
                permute(out, entry, 0, order)
    return out, moved


def rowwise(layout: Layout, vector: torch.Tensor, reference: torch.Tensor) -> tuple[torch.Tensor, int]:
    """FedNolowe's routine: match the rows of each weight separately, by plain distance, the head's included."""
    out, moved = vector.clone(), 0
    for entry in layout.entries:
        if entry.kind == "parameter" and len(entry.shape) > 1:
            own, other = (v[entry.place].view(entry.shape[0], -1) for v in (out, reference))
            order = assignment(own, other, plain=True)
            moved += int((order != torch.arange(len(order))).sum())
            permute(out, entry, 0, order)
    return out, moved


def rows(vector: torch.Tensor, layer: Layer) -> torch.Tensor:
    """[w, b] per unit."""
    own = [vector[entry.place].view(layer.units, -1) for entry in (layer.weight, layer.bias) if entry is not None]
    return torch.cat(own, 1)


def assignment(own: torch.Tensor, reference: torch.Tensor, plain: bool = False) -> torch.Tensor:
    """order[j] is the unit that moves to position j of the reference, by squared or by `plain` distance."""
    a, b = own.double(), reference.double()
    cost = b.square().sum(1)[:, None] + a.square().sum(1)[None, :] - 2 * b @ a.T
    order: torch.Tensor = assign(cost.clamp(min=0).sqrt() if plain else cost)
    return order


def permute(vector: torch.Tensor, entry: Entry, dim: int, order: torch.Tensor) -> None:
    """Reorder an entry's rows (dim 0) or inputs (dim 1), which may be blocks of equal size."""
    lead = entry.shape[:dim]
    view = vector[entry.place].view(*lead, len(order), -1)
    view.copy_(view.index_select(dim, order))
