"""What a site claims about its work, checked against what its data and the plan allow.

A claim decides how much a site counts (samples, steps, losses) or what the others compute with (vectors, statistics,
counters). A claim that cannot be true is `Malformed`.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from undrift.contract.context import Plan
from undrift.contract.declare import SLACK, Malformed
from undrift.contract.job import PATIENCE
from undrift.contract.parts import defines
from undrift.core.vector import Integers, Layout
from undrift.deploy.policy import least_samples

VARIANCE, COUNTER = "running_var", "num_batches_tracked"  # PyTorch's names of BatchNorm's buffers


def check_counts(entry: dict[str, Any], plan: Plan, round: int, max_samples: int) -> None:
    """Samples and steps decide how much a site counts. Both are what its data and the plan give."""
    n, steps, effective = entry["n"], entry["steps"], entry["effective_steps"]
    if not 1 <= n <= max_samples:
        raise Malformed(f"it counts {n} samples; at the handshake it had {max_samples} samples")
    least, most = step_range(plan, n)
    if not least <= steps <= most:
        raise Malformed(f"it counts {steps} steps; {n} samples give {least} to {most}")
    if needs_effective_steps(plan):
        expected = effective_steps(steps, plan.momentum, shrink(plan, round, n))
        if steps and (effective is None or not abs(effective - expected) <= SLACK * expected):
            raise Malformed(f"it counts {effective} effective steps; {steps} steps give {expected:g}")


def step_range(plan: Plan, n: int) -> tuple[int, int]:
    """The fewest and most steps of a site with n samples. A site may round its size up (`policy.py`), skip two losses
    that are not finite before it gives up, and skip batches of one sample. A sampling may choose and repeat samples."""
    if any(defines(part, "epoch_indices") for part in plan.method.parts):
        return 0, plan.epochs * n
    fewest = plan.epochs * (math.ceil(least_samples(n) / plan.batch) - int(plan.layout.batchnorm_needs_two))
    return max(0, fewest - (PATIENCE - 1)), plan.epochs * math.ceil(n / plan.batch)


def needs_effective_steps(plan: Plan) -> bool:
    return any("effective_steps" in part.needs for part in plan.method.parts)


def shrink(plan: Plan, round: int, n: int) -> float:
    """lr · μ of the proximal terms of a site with n samples, as its training adds them up."""
    job: Any = SimpleNamespace(plan=plan, n=n, round=round, lr=plan.rate(round))
    parts: list[Any] = [part for part in plan.method.parts if defines(part, "proximal_strength")]
    return plan.rate(round) * sum(part.proximal_strength(job) for part in parts)


def effective_steps(steps: int, momentum: float, shrink: float = 0.0) -> float:
    """What `TrainingStats` counts in so many steps. In closed form, or by a power of the matrix that makes one step:
    `steps` is a site's claim, and a loop over it would be as long as the site likes."""
    if shrink:
        one_step = np.array([[momentum, -shrink, 1.0], [momentum, 1.0 - shrink, 1.0], [0.0, 0.0, 1.0]])
        with np.errstate(all="ignore"):  # a proximal term above 2/lr diverges: no claim equals infinity
            return float(np.linalg.matrix_power(one_step, steps)[1, 2])
    if momentum >= 1:
        return steps * (steps + 1) / 2
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def loss_of(value: float | None, least: float) -> float:
    """A recorded loss. None is a loss that is not finite: the quarantine reports it."""
    if value is not None and value < least - 1e-5:
        raise Malformed(f"it reports the loss {value:g}; the run's loss is at least {least:g}")
    return math.nan if value is None else value


def check_statistics(vector: torch.Tensor, layout: Layout) -> None:
    """A running variance is at least 0. A negative one makes the model NaN at every site."""
    for entry in layout.entries:
        if entry.name.endswith(VARIANCE) and bool((vector[entry.place] < 0).any()):
            raise Malformed(f"the variance {entry.name} is below 0")


def check_counters(received: Integers, sent: Integers, steps: int, layout: Layout) -> None:
    """BatchNorm's counters grow by one in every step, and in the steps that were skipped."""
    for name, value in received.items():
        if name.endswith(COUNTER):
            uses = [module for module, _ in layout.modules].count(name.rpartition(".")[0])
            grown = value - sent[name]
            if bool((grown < 0).any()) or bool((grown > max(1, uses) * (steps + PATIENCE)).any()):
                raise Malformed(
                    f"the counter {name} went from {sent[name].tolist()} to {value.tolist()} in {steps} steps"
                )


def check_norm(what: str, vector: torch.Tensor, max_norm: float) -> None:
    """Refuse a vector that is too long. Non-finite values pass: the quarantine reports them."""
    size = norm_of(vector)
    if math.isfinite(size) and size > max_norm:
        raise Malformed(f"{what} has the norm {size:.3g}; at most {max_norm:.3g} is accepted")


def norm_of(vector: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(torch.nan_to_num(vector, posinf=0.0, neginf=0.0).double()))
