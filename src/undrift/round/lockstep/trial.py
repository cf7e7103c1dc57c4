"""Which stacked form a network has, and whether it works: before round 0 it is tried out on made-up samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from undrift.core.determinism import one_thread
from undrift.core.vector import Flat
from undrift.core.words import in_short
from undrift.round.lockstep.leaves import Unstackable, leaves_of
from undrift.round.lockstep.linear import rounded
from undrift.round.lockstep.mapped import AT_ONCE, Mapped, unchanged
from undrift.round.lockstep.network import (
    Products,
    Stacked,
    aligned_rows,
    head_places,
    refuse_hooks,
    refuse_leaf,
    unknown_leaf,
)

PLACES = 5  # clients in the stack of a trial


def stacked_network(flat: Flat, samples: int | None = None, any_layer: bool = True) -> Stacked:
    """The network for stacks of batches of so many samples; `Unstackable` where there is none."""
    if not all(parameter.requires_grad for parameter in flat.module.parameters()):
        raise Unstackable("the model has frozen parameters")
    found: Stacked
    try:
        found = Products(flat, samples)
    except Unstackable as of_chain:
        try:
            found = mapped_network(flat, any_layer)
        except Unstackable as error:
            # A BatchNorm1d is no obstacle in a chain, so what keeps the chain from products is to blame.
            raise (of_chain if "BatchNorm1d" in str(error) else error) from None
    norms = sum(type(module) is nn.BatchNorm1d for module in flat.module.modules())
    if sum(1 for _ in flat.module.buffers()) != 3 * norms:  # a mean, a variance and a count of batches for each
        raise Unstackable("the model has buffers, which belong to one client")
    return found


def mapped_network(flat: Flat, any_layer: bool) -> Mapped:
    """Layers that are not known to round alike need a fixed number of clients. Without `any_layer` they are refused."""
    unknown = ""
    for name, module in flat.module.named_modules():
        refuse_hooks(name, module)
        if not any(True for _ in module.children()):
            refuse_leaf(name, module)
            unknown = unknown or unknown_leaf(name, module)
    if unknown and not any_layer:
        raise Unstackable(unknown)
    return Mapped(flat, head_places(flat), AT_ONCE if unknown else None)


@dataclass(frozen=True)
class StackTrial:
    """What a network gives for made-up samples: stacked, for clients with the same model and samples, and by itself."""

    stacked: list[torch.Tensor]  # logits, BatchNorm's statistics, then gradients: each [clients, …]
    alone: list[torch.Tensor | None]  # the same, of the module; None: not compared
    padded: bool  # whether the logits of the first samples are those of a batch without more


def trial(network: Stacked, flat: Flat, sample: torch.Tensor, places: int) -> StackTrial:
    """One batch forward and backward, filled up with its first sample as the batches of a stack are. It is larger than
    `sample` where the network may look at the whole batch."""
    mapped = isinstance(network, Mapped)
    rows = aligned_rows(flat, sample, len(sample) + mapped)
    x = torch.cat([sample, sample[:1].expand(rows - len(sample), *sample.shape[1:])])
    stack = torch.zeros(places, rounded(flat.layout.nP), device=flat.device)
    stack[:, : flat.layout.nP] = flat.P
    statistics = flat.vector[flat.layout.nP :].repeat(places, 1)
    leaves = leaves_of(flat.layout, stack, statistics)
    share = torch.full((places, rows), 1 / rows, device=flat.device)
    with unchanged(flat.module):
        logits = network(leaves, x.expand(places, *x.shape).contiguous(), share)
    wanted = flat(x)
    weights = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(0)).to(flat.device)
    found = torch.autograd.grad((logits * weights).sum(), leaves[: len(flat.parameters)], allow_unused=True)
    own = torch.autograd.grad((wanted * weights).sum(), flat.parameters, allow_unused=True)
    padded = not mapped or close(logits[0, : len(sample)], flat(sample))
    # Known layers sum over as many samples as a batch of the run has, not over all of these.
    pairs = [(one, other if mapped else None) for one, other in zip(found, own) if one is not None]
    return StackTrial(
        [logits, statistics, *[one for one, _ in pairs]], [wanted, None, *[other for _, other in pairs]], padded
    )


def tried(network: Stacked, flat: Flat, sample: torch.Tensor) -> None:
    """Refuse a stacked network that does not give what the module gives, or gives other bits at another place."""
    name, kept, was = type(flat.module).__name__, flat.kept(), flat.module.training
    flat.module.train()
    few = network.together if isinstance(network, Mapped) else None
    try:
        with one_thread():  # as clients train: more threads cut products by their size
            found = trial(network, flat, sample, PLACES if few is None else few + 1)
            flat.load(*kept)
            lone = trial(network, flat, sample, 1)
    except Unstackable:
        raise
    except Exception as error:
        raise Unstackable(f"the model {name} cannot be stacked: {in_short(error)}") from error
    finally:
        flat.load(*kept)
        flat.module.train(was)
    same = [other is None or close(one[0], other) for one, other in zip(found.stacked, found.alone)]
    if not same[0]:
        raise Unstackable(f"the model {name} gives other logits when it is stacked")
    if not found.padded:
        raise Unstackable(f"the model {name} looks at all samples of a batch at once, and stacks fill batches up")
    if not all(same):
        raise Unstackable(f"the model {name} gives other gradients when it is stacked")
    if not all(torch.equal(one[0], other) for one in found.stacked for other in one):
        raise Unstackable(f"the model {name} rounds differently at another place of a stack")
    if not all(torch.equal(one[0], other[0]) for one, other in zip(found.stacked, lone.stacked)):
        raise Unstackable(f"the model {name} rounds differently in a stack of another size")


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal but for rounding."""
    other = other.detach()
    return one.shape == other.shape and torch.allclose(
        one, other, rtol=1e-3, atol=1e-4 * max(1.0, float(other.abs().max()))
    )
