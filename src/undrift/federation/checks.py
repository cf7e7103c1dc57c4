"""Checks of what `ud.federate` is given, and of what a user's own partition returns."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from undrift.core import text
from undrift.core.errors import BadRequest, raised
from undrift.core.references import name_of

# Of what each is a share, and whether it may be 0.
SHARES = {
    "validation": ("≤", "training data"),
    "proxy": ("≤", "training data"),
    "unseen": ("≤", "clients"),
    "test_share": ("<", "samples"),
}


def check_given(data: Any, partition: Any, clients: Any, seed: Any, shares: dict[str, Any]) -> None:
    """Types and ranges of the arguments."""
    from undrift.data.dataset import DataSet

    if not isinstance(data, (str, os.PathLike, DataSet)):
        raise BadRequest(
            f"data is a name, a path or a DataSet, not {data!r}; `undrift data list` shows the names, and "
            "ud.Federation.from_clients takes your own arrays"
        )
    if partition is not None and not isinstance(partition, str) and not callable(partition):
        raise BadRequest(
            f"partition is a text such as dirichlet(0.3), or a function of (labels, clients, generator, groups), not "
            f"{partition!r}"
        )
    if clients is not None and (not is_whole(clients) or clients < 1):
        raise BadRequest(f"a federation needs at least one client, a whole number of them, not {clients!r}")
    if not is_whole(seed):
        raise BadRequest(f"seed must be a whole number, not {seed!r}")
    for name, share in shares.items():
        least, whose = SHARES[name]
        number = isinstance(share, (int, float, np.number)) and not isinstance(share, bool)
        if not number or not 0 <= share < 1 or (least == "<" and share == 0):
            raise BadRequest(f"{name} is a share of the {whose}, 0 {least} {name} < 1, not {share!r}")


def no_validation(share: float, largest: int) -> BadRequest:
    """The error for a share of validation data that is less than one sample of the largest client."""
    fix = f"use at least {max(0.01, 1 / largest):.2g}" if largest > 1 else "give the clients more samples"
    return BadRequest(
        f"validation={share!r} holds out no sample of any client, and the largest has {largest}; {fix}, or use none"
    )


def is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_noise(noises: Sequence[Any]) -> None:
    for noise in noises:
        if not hasattr(noise, "when") or not hasattr(noise, "apply"):
            number = isinstance(noise, float) and math.isfinite(noise)
            hint = f"symmetric({noise:g})" if number else "symmetric(0.2)"
            raise BadRequest(f"noise is a text such as {hint}, or an object of ud.noise, not {noise!r}")


def refuse_labels(rule: Any, task: Any) -> None:
    """Refuse a partition that works on classes, for a task without them."""
    from undrift.federation import partition as partitions

    ours = {getattr(partitions, name): name for name in partitions.__all__}
    if type(rule) in ours and getattr(rule, "needs_labels", True):
        first = "target_skew(0.3)" if task.name == "regression" else "cluster_skew(0.3)"
        others = [name for kind, name in ours.items() if not getattr(kind, "needs_labels", True)]
        others = [name for name in others if name != "target_skew" and not first.startswith(name)]
        raise BadRequest(
            f"the partition {ours[type(rule)]} deals by classes, and {task.name} has none; use {first}, or one of "
            f"{', '.join(others)}"
        )


NOISES = {"numbers": "gaussian(0.5)", "tokens": "replace_tokens(0.1)", "classes": "symmetric(0.2)"}


def refuse_noises(noises: Sequence[Any], task: Any) -> None:
    """Refuse a noise that changes what the task does not have."""
    has = "classes" if "labels" in task.provides else {"regression": "numbers", "sequence": "tokens"}.get(task.name)
    for noise in noises:
        if (changes := getattr(noise, "changes", "classes")) != has:
            fix = f"use {NOISES[has]}" if has else "leave it out"
            name = text.spell(noise).partition("(")[0]
            raise BadRequest(f"the noise {name} changes {changes}, and {task.name} has none; {fix}")


def deal(rule: Any, labels: np.ndarray, clients: int, stream: np.random.Generator, groups: np.ndarray | None) -> Any:
    """The shards that a partition returns, checked: one array of row numbers per client."""
    name = name_of(rule)
    try:
        dealt = rule(labels, clients, stream, groups)
    except BadRequest:
        raise
    except Exception as error:
        raise BadRequest(
            f"the partition {name} failed: {raised(error)}; it must take (labels, clients, stream, groups)"
        ) from error
    if isinstance(dealt, tuple):
        dealt = list(dealt)
    lazy = not isinstance(dealt, list) and all(hasattr(dealt, hook) for hook in ("__len__", "__getitem__", "sizes"))
    if not lazy and not isinstance(dealt, list):
        raise BadRequest(
            f"the partition {name} returned {type(dealt).__name__}; return a list with one array of row numbers per client"
        )
    if len(dealt) != clients:
        raise BadRequest(
            f"the partition {name} returned {len(dealt)} shards for {clients} clients; return one per client"
        )
    if not lazy:
        check_shards(name, dealt, len(labels))
    return dealt


def check_shards(name: str, shards: list[Any], samples: int) -> None:
    for client, shard in enumerate(shards):
        try:
            rows = shards[client] = np.asarray(shard)
        except ValueError:
            rows = np.empty((0, 0))
        if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
            raise BadRequest(
                f"the partition {name} gave client {client} no flat array of row numbers, but {shard!r:.60}"
            )
        if not len(rows):
            shards[client] = rows.astype(np.int64)
        elif rows.min() < 0 or rows.max() >= samples:
            out = rows[(rows < 0) | (rows >= samples)][0]
            raise BadRequest(
                f"the partition {name} gave client {client} the row number {out}, but rows are numbered 0 to {samples - 1}"
            )
