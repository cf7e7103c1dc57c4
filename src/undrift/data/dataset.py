"""`DataSet`, which every reader returns: arrays, names, and how to standardise the inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from undrift.core.errors import LABELS, BadRequest
from undrift.core.words import shown

if TYPE_CHECKING:
    import torch

    from undrift.contract.task import Task


@dataclass(frozen=True, eq=False)
class DataSet:
    """Training and test samples of one set.

    x is uint8 images (N, C, H, W), float32 images of the same shape in 0…1, or a float32 table (N, F). It may be a
    mapped file. y is int64 in 0…classes−1. `mean` and `std` are per channel (in units of 0…1) or per column. `domain_*`
    holds indices into `domains` and `client_*` into `clients`, for data that name the domain or client of every sample.

    `task` is a task or its text; None is classification. With another one y is what the task takes, and `classes` names
    the network's outputs (tokens, labels, targets). x and y may be `Columns` or `Ragged` (`undrift.core.samples`). Inputs
    without `mean` and `std` are used as they are, and their integers stay integers.
    """

    name: str
    x_train: Any
    y_train: Any
    x_test: Any
    y_test: Any
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    licence: str
    source: str
    domains: tuple[str, ...] = ()
    domain_train: np.ndarray | None = None
    domain_test: np.ndarray | None = None
    note: str = ""
    clients: tuple[str, ...] = ()
    client_train: np.ndarray | None = None
    client_test: np.ndarray | None = None
    task: Any = None

    def __post_init__(self) -> None:
        if self.task is not None:
            self.check_task()
        elif self.x_train.shape[1:] != self.x_test.shape[1:]:
            raise BadRequest(
                f"training samples of {self.name} have shape {self.x_train.shape[1:]} but test samples "
                f"{self.x_test.shape[1:]}; bring them to one shape"
            )
        elif self.x_train.ndim not in (2, 4):
            raise BadRequest(
                f"samples of {self.name} have shape {self.x_train.shape[1:]}; "
                "give images (N, C, H, W) or a table (N, F)"
            )
        if not len(self.x_train):
            raise BadRequest(f"{self.name} has 0 training samples; check the files it was read from")
        for split, x, y in (("train", self.x_train, self.y_train), ("test", self.x_test, self.y_test)):
            if self.task is None:
                _check_samples(self.name, split, x, y, len(self.classes))
        for kind, known, columns in (
            ("domain", self.domains, {"train": self.domain_train, "test": self.domain_test}),
            ("client", self.clients, {"train": self.client_train, "test": self.client_test}),
        ):
            _check_groups(self, kind, known, columns)

    def check_task(self) -> None:
        """Refuse samples and targets that the task does not take."""
        from undrift.core import samples

        task = self.as_task
        for split, x, y in (("train", self.x_train, self.y_train), ("test", self.x_test, self.y_test)):
            if len(y):
                who = f"{self.name} ({split})"
                task.in_range(task.targets(x, samples.of(y), who), who)
                if isinstance(x, np.ndarray) and x.dtype.kind == "f" and not np.isfinite(x).all():
                    raise BadRequest(
                        f"{who} holds NaN or infinite values, first in sample {_first_bad(x)}; remove or fill them"
                    )

    @property
    def as_task(self) -> Task:
        """The task of these data, with as many outputs as there are classes."""
        from undrift import tasks

        return tasks.read(self.task).with_outputs(len(self.classes))

    @property
    def shape(self) -> Any:
        """The shape of one sample; of columns one shape by name."""
        if isinstance(self.x_train, np.ndarray):
            return tuple(self.x_train.shape[1:])
        from undrift.core import samples

        return samples.shape(self.x_train)

    def scaled(self, x: np.ndarray) -> torch.Tensor:
        """A float32 copy of x, with uint8 scaled to 0…1. Domain transforms and augmentations work on this."""
        return scaled(x)

    def standardised(self, x: Any) -> Any:
        """A float32 copy of (x − mean)/std. Arrays are scaled first, a tensor must already be in 0…1. Without moments
        the inputs as they are."""
        from undrift.core import samples

        return standardised(x, self.mean, self.std) if self.mean else samples.as_given(x)


def scaled(x: np.ndarray) -> torch.Tensor:
    import torch

    tensor = torch.from_numpy(np.array(x, dtype=np.float32))
    return tensor.div_(255) if x.dtype == np.uint8 else tensor


def standardised(x: np.ndarray | torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """See `DataSet.standardised`. The moments are per channel (N, C, H, W) or per column (N, F)."""
    import torch

    tensor = scaled(x) if isinstance(x, np.ndarray) else x.to(torch.float32, copy=True)
    along = (-1, *(1,) * (tensor.dim() - 2))
    means, deviations = (torch.tensor(values, dtype=torch.float32).view(along) for values in (mean, std))
    return tensor.sub_(means).div_(deviations)


def with_constants(source: DataSet, given: Any) -> DataSet:
    """The data set with other constants: "mean/deviation", each one number or one per channel (or column), as in
    "0.49,0.48,0.45/0.20,0.20,0.20". "0/1" leaves the inputs as they are."""
    channels = len(source.mean)
    try:
        means, deviations = ([float(one) for one in half.split(",")] for half in given.split("/"))
    except (ValueError, AttributeError):
        means = deviations = []
    counts, numbers = {len(means), len(deviations)}, [*means, *deviations]
    sound = counts <= {1, channels} and all(map(math.isfinite, numbers)) and min(deviations, default=0.0) > 0
    if not sound:
        each = f"one number, or {channels} of them" if channels > 1 else "one number"
        raise BadRequest(
            f"standardise must be mean/deviation, each {each} joined by commas and deviations above 0, as in 0.13/0.31, not "
            f"{shown(given)}"
        )
    wide = (tuple(half * channels if len(half) == 1 else half) for half in (means, deviations))
    return replace(source, mean=next(wide), std=next(wide))


def assembled(
    name: str, arrays: dict[str, np.ndarray], licence: str, source: str, note: str = "", task: Any = None
) -> DataSet:
    """A data set from decoded arrays, which include the class names, mean and standard deviation."""

    def named(key: str) -> tuple[str, ...]:
        return tuple(map(str, arrays[key].tolist())) if key in arrays else ()

    return DataSet(
        name,
        x_train=arrays["x_train"],
        y_train=arrays["y_train"],
        x_test=arrays["x_test"],
        y_test=arrays["y_test"],
        classes=named("classes"),
        mean=tuple(arrays["mean"].tolist()),
        std=tuple(arrays["std"].tolist()),
        licence=licence,
        source=source,
        domains=named("domains"),
        domain_train=arrays.get("domain_train"),
        domain_test=arrays.get("domain_test"),
        note=note if len(arrays["y_test"]) else f"{note}; no test part".lstrip("; "),
        clients=named("clients"),
        client_train=arrays.get("client_train"),
        client_test=arrays.get("client_test"),
        task=task,
    )


def _check_samples(name: str, split: str, x: np.ndarray, y: np.ndarray, classes: int) -> None:
    if len(x) != len(y):
        raise BadRequest(
            f"the {split} part of {name} has {len(x)} samples but {len(y)} labels; the files do not belong together"
        )
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise BadRequest(
            f"labels of {name} ({split}) must be a flat array of integers, not {y.dtype} of shape {y.shape}; {LABELS}"
        )
    if len(y) and not 0 <= y.min() <= y.max() < classes:
        wrong = y.min() if y.min() < 0 else y.max()
        raise BadRequest(
            f"{name} ({split}) has the label {wrong}, outside its {classes} classes 0…{classes - 1}; fix the labels"
        )
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise BadRequest(
            f"{name} ({split}) holds NaN or infinite values, first in sample {_first_bad(x)}; remove or fill them"
        )


def _first_bad(x: np.ndarray) -> int:
    return int(np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(1))[0])


def _check_groups(data: DataSet, kind: str, known: tuple[str, ...], columns: dict[str, np.ndarray | None]) -> None:
    if not known:
        return
    train = columns["train"]
    if train is None:
        raise BadRequest(f"{data.name} names {len(known)} {kind}s but no {kind} per sample; give {kind}_train")
    for split, column in columns.items():
        samples = len(data.y_train if split == "train" else data.y_test)
        if column is not None and len(column) != samples:
            raise BadRequest(
                f"{data.name} ({split}) has {samples} samples but {len(column)} {kind} ids; give one for each"
            )
        if column is not None and len(column) and not 0 <= column.min() <= column.max() < len(known):
            raise BadRequest(
                f"a {kind} id of {data.name} ({split}) is {column.max()}, but there are {len(known)} {kind}s"
            )
    empty = np.flatnonzero(np.bincount(train, minlength=len(known)) == 0)
    if len(empty):
        raise BadRequest(
            f"{kind} {known[empty[0]]!r} of {data.name} has no training samples; remove it or give it some"
        )


def measured(x: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel or column, uint8 in units of 0…1. Works in blocks, so that a mapped file
    is never loaded whole."""
    axes = (0, *range(2, x.ndim))
    scale = 255.0 if x.dtype == np.uint8 else 1.0
    total, square, count = 0.0, 0.0, 0
    for first in range(0, len(x), 1024):
        block = np.asarray(x[first : first + 1024], dtype=np.float64) / scale
        total = total + block.sum(axes)
        square = square + (block**2).sum(axes)
        count += block.size // block.shape[1]
    mean = np.asarray(total) / count
    with np.errstate(invalid="ignore", over="ignore"):  # `DataSet` refuses infinite values later and names the sample
        std = np.sqrt(np.maximum(np.asarray(square) / count - mean**2, 0))
    std[std < 1e-6] = 1.0  # a constant column carries no information: standardised it is 0
    return tuple(float(v) for v in np.round(mean, 6)), tuple(float(v) for v in np.round(std, 6))
