"""What the partitions share: the result, the checks, and the conversion from counts to index lists.

A partition first decides *how many* samples of each class every client gets (a client × class matrix of counts) and
only then, once, which ones: redrawing a matrix of counts costs microseconds, redrawing index lists costs more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from undrift.core.errors import LABELS, BadRequest

Array = np.ndarray


class DealtShards(list[Array]):
    """One int64 index array per client. `record` notes draws, repairs and unused samples for the run's record."""

    def __init__(self, arrays: Iterable[Array], record: Mapping[str, object] | None = None) -> None:
        super().__init__(arrays)
        self.record: dict[str, object] = dict(record or {})

    @property
    def sizes(self) -> Array:
        return np.array([len(shard) for shard in self], dtype=np.int64)


def checked(labels: Array, clients: int, least: int = 1) -> Array:
    """The labels as int64. Refuses what no partition can deal: every client needs `least` samples."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise BadRequest(
            f"labels must be a flat array of integers, not {labels.dtype} of shape {labels.shape}; {LABELS}"
        )
    if isinstance(clients, bool) or not isinstance(clients, int | np.integer) or clients < 1:
        raise BadRequest(f"clients must be a whole number of at least 1, not {clients!r}")
    if len(labels) and labels.min() < 0:
        raise BadRequest(f"labels must not be negative, but one is {labels.min()}; number the classes 0, 1, 2, …")
    if least * clients > len(labels):
        raise BadRequest(
            f"{clients} clients with at least {least} sample{'s' * (least > 1)} each need {least * clients} samples, "
            f"but there are {len(labels)}; ask for fewer clients, or use resample(size), which draws with replacement"
        )
    return labels.astype(np.int64)


def positive(partition: str, name: str, value: object) -> None:
    """Refuse a parameter that is not a finite number above zero."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:  # type: ignore[operator,arg-type]
        raise BadRequest(f"{name} of {partition} must be a finite number above 0, not {value!r}")


def whole(partition: str, name: str, value: object, least: int = 1) -> None:
    """Refuse a parameter that is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise BadRequest(f"{name} of {partition} must be a whole number of at least {least}, not {value!r}")


def one_of(partition: str, name: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        raise BadRequest(f"{name} of {partition} must be {' or '.join(map(repr, choices))}, not {value!r}")


def class_sizes(labels: Array) -> Array:
    """How many samples each class has: the columns of every matrix here."""
    return np.bincount(labels)


def largest_remainder(weights: Array, total: int) -> Array:
    """Whole numbers proportional to `weights` that sum to `total`: floors, then one more for the largest fractions."""
    exact = weights * (total / weights.sum())
    counts: Array = np.floor(exact + 1e-9).astype(np.int64)
    missing = total - int(counts.sum())
    if missing < 0:  # the slack of 1e-9 rounded too many up
        counts[np.argsort(exact - counts, kind="stable")[:-missing]] -= 1
    elif missing:
        counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts


def repair(counts: Array, least: int, stream: np.random.Generator) -> int:
    """Lift every client to `least` samples, one random sample at a time from the client that is largest at that moment.

    Changes `counts` in place and returns how many clients were lifted. Column sums, i.e. the samples in use, stay.
    """
    sizes = counts.sum(1)
    poor = np.flatnonzero(sizes < least)
    for client in poor:
        while sizes[client] < least:
            giver = int(sizes.argmax())
            drawn = stream.integers(sizes[giver])
            column = int(np.searchsorted(np.cumsum(counts[giver]), drawn, side="right"))
            counts[giver, column] -= 1
            counts[client, column] += 1
            sizes[giver] -= 1
            sizes[client] += 1
    return len(poor)


def shuffled_classes(labels: Array, stream: np.random.Generator) -> list[Array]:
    """The indices of each class in random order."""
    order = stream.permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    return np.split(by_class, np.cumsum(class_sizes(labels))[:-1])


def deal(counts: Array, by_class: Sequence[Array]) -> list[Array]:
    """Index lists from counts: client k takes the next counts[k, c] of class c. Other samples are not dealt."""
    clients = np.arange(len(counts))
    taken = [indices[: counts[:, c].sum()] for c, indices in enumerate(by_class)]
    owner = np.concatenate([np.repeat(clients, counts[:, c]) for c in range(len(by_class))])
    order = np.argsort(owner, kind="stable")
    indices = np.concatenate(taken).astype(np.int64)[order]
    return np.split(indices, np.cumsum(counts.sum(1))[:-1])


def matrix(shards: Sequence[Array], labels: Array, classes: int) -> Array:
    """The client × class matrix of counts."""
    labels = np.asarray(labels)
    rows = [np.bincount(labels[shard], minlength=classes) for shard in shards]
    return np.array(rows, dtype=np.int64).reshape(len(shards), classes)


def apply_matrix(matrix: Array, test_labels: Array, stream: np.random.Generator) -> list[Array]:
    """Local test slices: every class of the test set split over the clients as the training set's class was.

    Each column is rounded by largest remainder, so every test sample of a class that some client holds is used exactly
    once. A class that no client holds is not dealt. A client with few samples may get an empty slice.
    """
    test_labels = np.asarray(test_labels).astype(np.int64)
    counts = np.zeros(matrix.shape, dtype=np.int64)
    by_class = shuffled_classes(np.concatenate([test_labels, np.arange(matrix.shape[1])]), stream)
    by_class = [indices[indices < len(test_labels)] for indices in by_class][: matrix.shape[1]]
    for c, indices in enumerate(by_class):
        if matrix[:, c].sum():
            counts[:, c] = largest_remainder(matrix[:, c].astype(np.float64), len(indices))
    return deal(counts, by_class)
