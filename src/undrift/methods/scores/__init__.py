"""Confidence scores: how confident a model is in a sample. Larger means more in-distribution.

Pure functions of (logits, features, head) that return one number per sample. Only the ASH family uses features and
head. A text such as `flood(score=ash-s)` is looked up in the table `SCORES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from undrift.contract.declare import Number
from undrift.contract.job import Job
from undrift.contract.task import Task
from undrift.core.errors import unknown
from undrift.methods.scores.ash import Head, ash_b, ash_p, ash_s, ash_s_raw, guarded
from undrift.methods.scores.energy import energy
from undrift.methods.scores.gen import gen, gen_floor
from undrift.methods.scores.maxlogit import maxlogit
from undrift.methods.scores.msp import msp

__all__ = [
    "SCORES",
    "ash_b",
    "ash_p",
    "ash_s",
    "ash_s_raw",
    "energy",
    "gen",
    "gen_floor",
    "maxlogit",
    "msp",
    "named",
    "needs",
]

SCORES: dict[str, Callable[..., torch.Tensor]] = {
    "msp": msp, "maxlogit": maxlogit, "energy": energy, "gen": gen, "ash-p": ash_p, "ash-b": ash_b, "ash-s": ash_s,
    "ash-s-raw": ash_s_raw,
}  # fmt: skip
# The scores with limits of their own. The others are as large as the logits.
RANGES = {"msp": Number(0.0, 1.0), "gen": Number(lambda plan: gen_floor(plan.classes), 0.0)}


def named(name: str) -> Callable[..., torch.Tensor]:
    if name not in SCORES:
        raise unknown("score", name, SCORES)
    return SCORES[name]


def needs(name: str) -> tuple[str, ...]:
    """What a part that uses this score must declare as its `needs`."""
    return ("class_logits", "features") if name.startswith("ash") else ("class_logits",)


def of_logits(
    name: str, task: Task, logits: torch.Tensor, y: Any, features: torch.Tensor | None, head: Head | None
) -> torch.Tensor:
    """One score per sample. Of a sequence or a mask it is the mean over its tokens or pixels."""
    score = named(name)
    z = task.class_logits(logits)
    if z.dim() == 2:
        return score(z, features, head)
    return task.per_sample(score(z.flatten(0, -2)).view(z.shape[:-1]), y)


def guarded_in(name: str, features: torch.Tensor | None) -> int:
    """How many scores of these samples are not the formula's, because a guard acted."""
    return guarded(features) if name == "ash-s" and features is not None else 0


def of_pass(name: str, job: Job, role: str) -> torch.Tensor:
    """The scores of a client's training data under the "received" or "trained" model, from one shared pass."""
    scored = job.scored(role)
    head = job.replica(getattr(job, role)).flat.head if "features" in needs(name) else None
    if changed := guarded_in(name, scored.features):
        job.note("guarded", changed)
    with torch.no_grad():
        return of_logits(name, job.plan.task, scored.logits, job.targets, scored.features, head)
