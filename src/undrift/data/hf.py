"""A Hugging Face dataset (extra `hf`): images, columns of numbers, token ids of unequal length, or several of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undrift.core.errors import BadRequest, unknown
from undrift.data.dataset import DataSet
from undrift.data.own import OWN, moments_for, with_names
from undrift.data.tables import data_set, feature, in_units, numbered, numbered_groups, pictures

if TYPE_CHECKING:
    from undrift.contract.task import Task

ENCODE = "; encode it (a tokenizer gives ids) or drop it"


def hugging_face(
    dataset: Any,
    label: str | Sequence[str] = "label",
    client: str | None = None,
    *,
    domain: str | None = None,
    image: str | None = None,
    features: Sequence[str] | None = None,
    name: str = "hugging-face",
    task: Any = None,
    pad: float = -1,
) -> DataSet:
    """A Hugging Face `Dataset`, or a `DatasetDict` with the splits train and test (extra `hf`).

    The input is its image column if it has one, else its columns of numbers as one table. A column with several numbers per
    row, such as token ids, is the input by itself; several columns of which one is such are given to the network by name.
    Rows of unequal length are padded with `pad`, which no row holds. `task` is a task or its text; its
    targets may be numbers, lists (one token per place), several columns, or an image (a class per pixel)."""
    rows, test = splits_of(dataset, name)
    known, labels = rows[0].features, [label] if isinstance(label, str) else list(label)
    images = [column for column, kind in known.items() if type(kind).__name__ == "Image" and column not in labels]
    image = image or (images[0] if images and features is None else None)
    taken = [column for column in (*labels, client, domain) if column is not None]
    features = [c for c in known if c not in taken and c not in images] if features is None else list(features)
    for column in (*taken, *([image] if image else features)):
        if column not in known:
            raise unknown(f"column of {name}", column, known)
    if not image and not features:
        raise BadRequest(f"{name} has no column beside {', '.join(taken)}; it needs features to learn from")
    if image:
        x: Any = pictures([each for part in rows for each in part[image]], name)
    else:
        x = inputs({column: values_of(rows, column) for column in features}, name, pad)
    groups = {kind: values_of(rows, column) for kind, column in (("client", client), ("domain", domain)) if column}
    tested = np.arange(len(x)) >= len(rows[0])
    if task is None and len(labels) == 1 and isinstance(x, np.ndarray) and x.ndim in (2, 4) and x.dtype.kind in "fu":
        y = np.asarray(values_of(rows, labels[0]))
        return data_set(name, x, y, labels[0], groups, tested if test else None, names_of(known[labels[0]]))
    from undrift import tasks

    found = tasks.read("classification" if task is None else task)
    y, classes = targets(rows, labels, found, name)
    return of_task(name, x, y, classes, numbered_groups(name, groups, tested), tested, found)


def splits_of(dataset: Any, name: str) -> tuple[list[Any], str | None]:
    """The training split, and the test split and its name where there is one."""
    splits = dict(dataset) if isinstance(dataset, Mapping) else {"train": dataset}
    test = next((split for split in ("test", "validation", "valid") if split in splits), None)
    if "train" not in splits:
        raise BadRequest(f"{name} has the splits {', '.join(splits)}; name one of them, or call one train")
    return [splits["train"], *([splits[test]] if test else [])], test


def values_of(parts: Sequence[Any], column: str) -> Any:
    """A column of all splits: one array, or a list of arrays where rows have unequal shapes."""
    rows = [np.asarray(one) for part in parts for one in part[column]]
    return np.stack(rows) if len({one.shape for one in rows}) == 1 else rows


def inputs(columns: Mapping[str, Any], name: str, pad: float) -> Any:
    """One number per column: a table. One column of lists: these alone. Otherwise the columns by name."""
    from undrift.core.samples import Columns

    if all(isinstance(values, np.ndarray) and values.ndim == 1 for values in columns.values()):
        return np.stack([feature(values, column, name, ENCODE) for column, values in columns.items()], axis=1)
    found = {column: leaf(values, column, name, pad) for column, values in columns.items()}
    return next(iter(found.values())) if len(found) == 1 else Columns(found)


def leaf(values: Any, column: str, name: str, pad: float) -> Any:
    """An array of numbers, or sequences."""
    from undrift.core.samples import Ragged

    rows = [values] if isinstance(values, np.ndarray) else values
    bad = next((one for one in rows if one.size and one.dtype.kind not in "fiub"), None)
    if bad is not None or len({one.ndim for one in rows}) > 1:
        raise BadRequest(f"the column {column} of {name} does not hold numbers{ENCODE}")
    if isinstance(values, np.ndarray):
        return values
    whole = all(one.dtype.kind != "f" for one in rows if one.size)  # an empty list has no type; `Ragged` refuses it
    return Ragged([one.astype(np.int64 if whole else np.float32) for one in rows], pad)


def targets(parts: Sequence[Any], labels: Sequence[str], task: Task, name: str) -> tuple[Any, Sequence[str]]:
    """The targets of a task, and the names of the network's outputs."""
    kinds, columns = parts[0].features, [values_of(parts, column) for column in labels]
    if len(labels) > 1:
        each = [feature(values, column, name, "; leave it out") for column, values in zip(labels, columns)]
        return np.stack(each, axis=1), labels
    kind, values = kinds[labels[0]], columns[0]
    if type(kind).__name__ == "Image":
        masks = pictures([each for part in parts for each in part[labels[0]]], name)
        return masks[:, 0].astype(np.int64), ()
    if "labels" in task.provides:
        if names := names_of(kind):
            return values, names
        known, numbers = numbered(values, labels[0], name)
        return numbers, known.tolist()
    y = leaf(values, labels[0], name, getattr(task, "pad", -1))
    return y, names_of(getattr(kind, "feature", kind)) or ()


def names_of(kind: Any) -> Sequence[str] | None:
    """The names of a `ClassLabel`."""
    names: Sequence[str] | None = getattr(kind, "names", None)
    return names


def of_task(
    name: str, x: Any, y: Any, classes: Sequence[str], groups: dict[str, Any], test: np.ndarray, task: Task
) -> DataSet:
    """A data set whose samples or targets are no plain table."""
    from undrift.core import samples

    task = in_units(task, y)
    outputs = classes or range(task.outputs or task.count(samples.of(y)))
    mean, std = moments_for(x, task)
    halves = {"train": ~test, "test": test}
    parts = {f"{key}_{half}": value[rows] for key, value in (("x", x), ("y", y)) for half, rows in halves.items()}
    return DataSet(
        name, **parts, classes=tuple(map(str, outputs)), mean=mean, std=std, licence=OWN, source=name, task=task,
        note="" if test.any() else "no test part", **with_names(groups),
    )  # fmt: skip
