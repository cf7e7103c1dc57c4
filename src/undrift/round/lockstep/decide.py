"""Whether a run is in lock-step. It is decided before round 0, from the network, the plan and the method alone."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from typing import Any

import cloudpickle
import torch
from torch import nn

from undrift.contract.context import Plan
from undrift.contract.parts import Part, defines
from undrift.core import text
from undrift.core.errors import BadRequest
from undrift.core.modules import module_copy
from undrift.core.vector import Flat
from undrift.core.words import shown
from undrift.round.lockstep.dense import dense_network
from undrift.round.lockstep.leaves import Unstackable
from undrift.round.lockstep.linear import rounded
from undrift.round.lockstep.network import KNOWN, Stacked, aligned_rows, chain, widths
from undrift.round.lockstep.trial import stacked_network, tried

BYTES = 1 << 25  # of one stack, unless the user says otherwise: more does not stay in a processor's cache
MOST_PARAMETERS = 40_000  # above it a stack leaves the cache, and one by one is as fast
MOST_SAMPLES = 256  # in a batch, likewise
FEW_CLASSES = 32  # with at most so many, the labels' part of the gradient is computed before the first step
MADE_UP = 8  # samples
MOST_TRIED = 64  # samples of a batch on which a network is tried out
IN_EPOCHS = ("epoch_indices", "update_mask", "logits", "sample_weights", "loss", "gradient", "after_clip", "after_step")
NEVER = ("batch_indices",)  # hooks that work on one client's batches only
ALONE = ("gradient_at", "sample_gradients")  # needs that look at one client's network


@dataclass(frozen=True)
class Asked:
    """`--lockstep`: auto, on or off, and how large a stack may be."""

    word: str
    bytes: int = BYTES


def read_option(given: str) -> Asked:
    """`auto`, `on`, `off`, `on(bytes=…)`."""

    def on(bytes: float = BYTES) -> Asked:
        if not 1 <= bytes < 2**50:
            raise BadRequest(f"bytes must be at least 1 and below 2**50, not {bytes:g}")
        return Asked("on", int(bytes))

    words: dict[str, Any] = {"auto": lambda: Asked("auto"), "on": on, "off": lambda: Asked("off")}
    try:
        asked = text.build("lockstep", given, words)
    except BadRequest as error:
        raise BadRequest(f"--lockstep: {error}" if "--lockstep" not in str(error) else str(error)) from None
    if not isinstance(asked, Asked):  # of a user's own code, which this option has no use for
        raise BadRequest(f"--lockstep must be auto, on, off or on(bytes=…), not {shown(given)}")
    return asked


def sample_of(x: torch.Tensor, samples: int = MADE_UP) -> torch.Tensor:
    """Made-up samples: what is decided may not depend on the data. Whole numbers are 0 and 1, which every vocabulary has, in
    another order for every sample."""
    draws, shape = torch.Generator().manual_seed(0), (samples, *x.shape[1:])
    return (
        torch.randn(shape, generator=draws)
        if x.is_floating_point()
        else torch.randint(2, shape, generator=draws).to(x.dtype)
    )


def network_of(plan: Plan, flat: Flat, plain_loss: bool, augmented: bool, x: Any, any_layer: bool) -> Stacked:
    """The network of this run for stacks; `Unstackable` says why it cannot be in lock-step. `any_layer`: whether layers
    without a stacked form may run through vmap."""
    if not isinstance(x, torch.Tensor):
        raise Unstackable("the samples are not one tensor")
    if not plain_loss:
        raise Unstackable("the loss is not the plain cross-entropy")
    if plan.batch == 1 and plan.layout.batchnorm_needs_two:
        raise Unstackable("BatchNorm has nothing to learn from batches of one sample")
    if augmented:
        raise Unstackable("augmentation draws for one client at a time")
    for part in plan.method.at_client:
        if reason := part_refuses(part):
            raise Unstackable(reason)
    network = stacked_network(flat, any_layer=any_layer)
    tried(network, flat, sample_of(x, max(2, min(plan.batch, MOST_TRIED))).to(flat.device))
    if any("features" in part.needs for part in plan.method.parts) and not can_show_features(network):
        raise Unstackable("the features of a network that runs through vmap are not known")
    return network


def part_refuses(part: Part) -> str:
    """Why a part keeps a run from lock-step. A part without a hook inside the epochs never does."""
    for hook in NEVER:
        if defines(part, hook):
            return f"the part {part.name} has a hook {hook}, which works on one client at a time"
    for need in ALONE:
        if need in part.needs:
            return f"the part {part.name} needs {need}, which looks at one client's network"
    if not part.lockstep and any(defines(part, hook) for hook in IN_EPOCHS):
        return f"the part {part.name} does not declare lockstep = True"
    return ""


def can_show_features(network: Stacked) -> bool:
    return network.kind != "vmap" and network.head_places is not None


def why_no_gain(plan: Plan) -> str:
    """Why `auto` stays one by one where lock-step is possible."""
    if plan.layout.nP > MOST_PARAMETERS:
        return f"{plan.layout.nP:,} parameters are too many to gain from it"
    return f"batches of {plan.batch} samples are too large to gain from it" if plan.batch > MOST_SAMPLES else ""


def decided(
    given: str, plan: Plan, flat: Flat, plain_loss: bool, augmented: bool, x: Any, before: str = ""
) -> tuple[int, str]:
    """(bytes of a stack, or 0 for one by one; a sentence that says which of the two, and why). `before`: the sentence of a run
    that is resumed, which goes on as it began."""
    asked = read_option(given)
    if before.startswith("clients one by one"):
        return 0, before
    if asked.word == "off":
        return 0, "clients one by one (asked for)"
    try:
        if asked.word == "auto" and (reason := why_no_gain(plan)):
            raise Unstackable(reason)
        network = network_of(plan, flat, plain_loss, augmented, x, any_layer=asked.word == "on")
    except Unstackable as error:
        if before:
            raise BadRequest(
                f"the clients of this run trained in lock-step, and here they cannot: {error}; resume it where it began"
            ) from None
        if asked.word == "on":
            raise BadRequest(f"--lockstep on is not possible: {error}; use --lockstep off or leave it out") from None
        return 0, f"clients one by one ({error})"
    return asked.bytes, f"clients in lock-step, as {network.kind}"


def alike(plan: Plan, flat: Flat, sample: torch.Tensor) -> str:
    """Equal for runs whose clients can share a stack: the same network, batches, optimizer, and parts at the client. Seeds,
    data, rates and numbers of epochs or rounds may differ."""
    private = None if plan.private is None else plan.private.nonzero().flatten().tolist()
    needs = sorted({need for part in plan.method.parts for need in part.needs})
    settings = (
        plan.batch,
        plan.optimizer,
        plan.momentum,
        plan.weight_decay,
        plan.clip,
        plan.persist_momentum,
        plan.lockstep,
    )
    network = (
        plan.layout.signature,
        same_module(flat.module),
        str(flat.device),
        tuple(sample.shape),
        str(sample.dtype),
    )
    known = repr((network, settings, plan.method.at_client, needs, private, plan.classes))
    return hashlib.sha256(known.encode()).hexdigest()


def same_module(module: nn.Module) -> str:
    """Equal for modules that compute the same. A chain of known layers prints all it is. Of any other the attributes count,
    and code that is not a module's of its own; one that cannot be pickled is like no other."""
    try:
        if all(type(layer) in KNOWN or type(layer) is nn.BatchNorm1d for _, layer in chain("", module)):
            return str(module)
        bare = module_copy(module)
        for child in bare.modules():
            child._parameters, child._buffers = dict.fromkeys(child._parameters), dict.fromkeys(child._buffers)
        return f"{module} {hashlib.sha256(cloudpickle.dumps(bare)).hexdigest()}"
    except Exception:
        return f"{module} {uuid.uuid4()}"


class Lockstep:
    """What a worker needs for stacks."""

    def __init__(self, plan: Plan, flat: Flat, x: torch.Tensor) -> None:
        sample = sample_of(x).to(flat.device)
        self.network = stacked_network(flat, plan.batch)
        self.dense = dense_network(flat, plan.batch)
        self.rows, self.bytes = aligned_rows(flat, sample, plan.batch), plan.lockstep
        through = widths(flat, sample)
        self.plan, self.sample, self.widest = plan, sample[0].numel(), max(through)
        self.passing = sum(through)  # numbers of a sample on its way through the network
        self.alike = alike(plan, flat, sample)
        vectors = (7 if plan.optimizer == "adam" else 6) * 4 * rounded(plan.layout.nP)
        if any(defines(part, "after_step") for part in plan.method.at_client):
            vectors *= 2  # a second model
        if any(defines(part, "stack_scratches") for part in plan.method.at_client):
            vectors += 2 * 4 * rounded(plan.layout.nP)  # their vectors along P once more, and one on its way to G
        self.of_client = vectors + 3 * 4 * self.rows * self.passing  # and one batch on its way through the network
        # Places, labels and weights of a batch. With few classes also its log-probabilities, twice, and the labels' gradient.
        outputs = 0 if self.dense is None or self.dense.outputs > FEW_CLASSES else self.dense.outputs
        self.of_step = (28 + 12 * outputs) * self.rows

    def bytes_of(self, samples: int, longest: int) -> int:
        """What a client with so many samples takes in a stack whose longest client has `longest`: its vectors, its samples and
        its batches."""
        steps = self.plan.epochs * -(-longest // self.plan.batch)
        return self.of_client + 4 * samples * self.sample + self.of_step * steps
