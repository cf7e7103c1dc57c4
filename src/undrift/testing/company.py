"""A part beside others: nothing may vanish, neither the part nor what it stands beside.

A hook that replaces the gradient by one of its own making, from a twin's plain loss say, runs without an error and removes
FedLC, FLOOD and every other part from the method. Here it is noticed, because the result is that of the part alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch

from undrift.contract.parts import Batch, Job, Objective, Part, defines
from undrift.core.errors import BadRequest, RunFailed
from undrift.methods.naming import method_pieces
from undrift.testing import QUICK, Broken, run_parts, tiny

OTHERS = ("objective.fedlc", "sampling.flood(T=1)", "objective.scaffold", 'private.named("*bias")')
SHORT: dict[str, Any] = {"rounds": 3, "epochs": 1, "batch": 8, "lr": 0.05, "evaluate_every": 1}
DIFFERENT = "the gradient is another one when a batch is seen again"
HOOKS = ("logits", "sample_weights", "loss", "gradient")
Result = tuple[Any, ...]


@dataclass(frozen=True)
class Echo(Objective):
    """Asks for the gradient at the live point and changes nothing."""

    needs: ClassVar = ("gradient_at",)

    def gradient(self, P: torch.Tensor, G: torch.Tensor, batch: Batch, job: Job, scratch: Any) -> None:
        if not torch.equal(batch.gradient_at(P), G):
            raise RuntimeError(DIFFERENT)


def check_company(part: Part, options: dict[str, Any]) -> None:
    """Run a part beside others, and beside one that asks for the gradient a second time."""
    options = {name: value for name, value in options.items() if name not in SHORT}
    others: dict[str, Result] = {} if options else KNOWN
    for text in ("fedavg", *OTHERS):
        if text not in others:
            others[text] = ended(text, options)
    try:
        alone = ended(part, options)
    except BadRequest:
        return  # it refuses this small federation
    plain = others["fedavg"]
    for text in OTHERS:
        other = method_pieces(text)[0].part
        if other.key == part.key:
            continue
        both = beside(part, text, options)
        if both is None:
            continue
        # A private part keeps other parts' terms out of its entries, of all entries if all are private.
        if both == alone and others[text] != plain and part.axis != "private":
            raise Broken(
                f"{other.name} has no effect beside {part.name}: the result is that of {part.name} alone; take gradients with "
                "batch.gradient_at, which has the terms of all parts"
            )
        if both == others[text] and alone != plain:
            raise Broken(f"{part.name} has no effect beside {other.name}: the result is that of {other.name} alone")
    if any(defines(part, hook) for hook in HOOKS):
        seen_again(part, alone, options)


def seen_again(part: Part, alone: Result, options: dict[str, Any]) -> None:
    """Another part may ask for the gradient a second time: it is the same one, and asking changes nothing. Such a part keeps
    a run one by one, so both runs are."""
    if {**QUICK, **options}["lockstep"] != "off":
        options = {**options, "lockstep": "off"}
        alone = ended([part], options)
    try:
        both = ended([part, Echo()], options)
    except BadRequest:
        return  # it refuses parts that take a second gradient
    except RunFailed as error:
        if DIFFERENT not in str(error):
            raise Broken(f"{part.name} beside a part that takes a second gradient: {error}") from error
        both = ()
    if both != alone:
        raise Broken(
            f"{part.name} gives another gradient when its hooks see a batch a second time, for another part's gradient_at; "
            "keep counts and running state only if not batch.again"
        )


def beside(part: Part, other: str, options: dict[str, Any]) -> Result | None:
    """The result of both; None where they refuse each other before the first round."""
    try:
        return ended([part, other], options)
    except BadRequest:
        return None
    except RunFailed as error:
        raise Broken(f"{part.name} beside {other}: {error}") from error


def ended(what: Any, options: dict[str, Any]) -> Result:
    """What a short run ends in: the models, and how good the clients' own ones are."""
    outcome = run_parts(what, federation(), **{**options, **SHORT})
    metrics = [outcome.metrics(stage, "own", "loss") for stage in ("L1", "L2")]
    return outcome.vector.numpy().tobytes(), outcome.sent.numpy().tobytes(), *metrics


KNOWN: dict[str, Result] = {}  # of the others alone, without options


@cache
def federation() -> Any:
    made = tiny(clients=3, samples=16)
    made.proxy_rows = np.arange(0, len(made.y), 9)
    return made
