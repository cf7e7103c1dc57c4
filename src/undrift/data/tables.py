"""Data that are already in Python: a pandas table or arrays by name. One row is one sample.

They become a `DataSet` that knows the client of every sample, so `ud.federate(data, "natural")` is the federation of
these clients. Every other partition, noise and domain works as on any data set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from undrift.core.errors import BadRequest, unknown
from undrift.data.cache import Arrays
from undrift.data.dataset import DataSet, assembled
from undrift.data.decode import whole_numbers
from undrift.data.own import OWN, with_moments
from undrift.data.readers import channels_first

MISSING = ("nan", "<NA>", "NaT")  # how numpy and pandas print missing values


def table(
    frame: Any,
    label: str | Sequence[str],
    client: str | None = None,
    *,
    domain: str | None = None,
    test: str | None = None,
    features: Sequence[str] | None = None,
    name: str = "table",
    task: Any = None,
) -> DataSet:
    """A pandas DataFrame, or arrays by name: columns of numbers are the features (all but the named ones, unless `features`
    lists them).

    `label` names the column that is predicted, or several of them. `client` and `domain` name the columns with client and
    domain ids, `test` a column that is true for test samples. `task` is a task or its text: regression, multilabel."""
    frame = frame if isinstance(frame, Mapping) else {str(column): frame[column].to_numpy() for column in frame.columns}
    columns, labels = list(frame), [label] if isinstance(label, str) else list(label)
    taken = [column for column in (*labels, client, domain, test) if column is not None]
    features = [column for column in columns if column not in taken] if features is None else list(features)
    for column in (*taken, *features):
        if column not in columns:
            raise unknown(f"column of {name}", str(column), columns)
    if not features:
        raise BadRequest(f"{name} has no column beside {', '.join(taken)}; it needs features to learn from")
    numbers = task is not None and not has_labels(task)
    if len(labels) > 1 and not numbers:
        raise BadRequest(
            f"{name} has {len(labels)} columns to predict, {', '.join(labels)}; say what they mean: task regression or multilabel"
        )
    x = np.stack([feature(frame[column], column, name) for column in features], axis=1)
    groups = {kind: frame[column] for kind, column in (("client", client), ("domain", domain)) if column}
    tested = None if test is None else frame[test].astype(bool)
    if numbers:
        return _numbers_data_set(name, x, frame, labels, groups, tested, task)
    return data_set(name, x, frame[labels[0]], labels[0], groups, tested, None)


def data_set(
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    label: str,
    groups: Mapping[str, np.ndarray],
    test: np.ndarray | None,
    classes: Sequence[str] | None,
) -> DataSet:
    y = whole_numbers(y, label, name) if y.dtype.kind == "f" else y
    known, numbers = (np.array(classes), y) if classes else numbered(y, label, name)
    arrays = _split(name, x, numbers.astype(np.int64), known, groups, test)
    return assembled(name, with_moments(arrays), OWN, name)


def _numbers_data_set(
    name: str,
    x: np.ndarray,
    frame: Mapping[str, np.ndarray],
    labels: Sequence[str],
    groups: Mapping[str, np.ndarray],
    test: np.ndarray | None,
    given: Any,
) -> DataSet:
    """A table whose targets are numbers. A regression gets the centre and the scale of its targets."""
    y = np.stack(
        [feature(frame[column], column, name, "; predict it as classes, or drop it") for column in labels], axis=1
    )
    from undrift import tasks

    task = in_units(tasks.read(given), y)
    if task.name == "regression" and len(labels) == 1:
        y = y[:, 0]
    arrays = _split(name, x, y, np.array(list(labels)), groups, test)
    return assembled(name, with_moments(arrays), OWN, name, task=task)


def in_units(task: Any, y: Any) -> Any:
    """The task with the centre and the scale of these targets, where it predicts numbers and says none."""
    from undrift import tasks

    if task.name != "regression" or not isinstance(y, np.ndarray):
        return task
    center, scale = (float(f"{value:.6g}") for value in (y.mean(), y.std()))
    return task.completed(tasks.regression(center=center, scale=scale if scale > 0 else 1.0))


def has_labels(task: Any) -> bool:
    """Whether a task predicts one class per sample."""
    from undrift import tasks

    return "labels" in tasks.read(task).provides


def _split(
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    classes: np.ndarray,
    groups: Mapping[str, np.ndarray],
    test: np.ndarray | None,
) -> Arrays:
    """The arrays of a data set: training and test rows, and the groups by number."""
    if not len(x):
        raise BadRequest(f"{name} has no rows; give at least one sample")
    test = np.zeros(len(x), dtype=bool) if test is None else test
    arrays: Arrays = {"classes": classes}
    for split, rows in (("train", ~test), ("test", test)):
        arrays[f"x_{split}"], arrays[f"y_{split}"] = x[rows], y[rows]
    return arrays | numbered_groups(name, groups, test)


def numbered_groups(name: str, groups: Mapping[str, np.ndarray], test: np.ndarray) -> Arrays:
    """Clients and domains by number, and their names."""
    arrays: Arrays = {}
    for kind, ids in groups.items():
        known, numbers = numbered(ids, kind, name)
        arrays |= {f"{kind}s": known, f"{kind}_train": numbers[~test]} | (
            {f"{kind}_test": numbers[test]} if test.any() else {}
        )
    return arrays


def numbered(values: np.ndarray, column: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(the distinct values in sorted order, as text, the index of each sample's value)."""
    if any(value is None or (not isinstance(value, str) and str(value) in MISSING) for value in values.tolist()):
        raise BadRequest(f"the column {column} of {name} has missing values; fill them or drop these rows")
    known, numbers = np.unique(values if values.dtype.kind in "iub" else values.astype(str), return_inverse=True)
    return known.astype(str), numbers.astype(np.int64)


def feature(
    values: np.ndarray, column: str, name: str, fix: str = "; encode it (pandas.get_dummies) or drop it"
) -> np.ndarray:
    if values.dtype.kind not in "fiub" or values.ndim != 1:
        raise BadRequest(f"the column {column} of {name} does not hold numbers{fix}")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which `DataSet` refuses
        return values.astype(np.float32)


def pictures(given: Sequence[Any], name: str) -> np.ndarray:
    arrays = [np.asarray(image) for image in given]
    for place, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            first, other = ("×".join(map(str, shape)) for shape in (arrays[0].shape, array.shape))
            raise BadRequest(
                f"images of {name} must be of one size, but sample 0 is {first} and sample {place} {other}; resize them"
            )
    return channels_first(np.stack(arrays))
