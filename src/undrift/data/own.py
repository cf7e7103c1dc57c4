"""The user's own data: an .npz, a .csv, or a folder of images.

An .npz holds x_train and y_train (or x and y), and may hold x_test and y_test, `classes`, a client id per training
sample (`client` or client_train, client_test) and a domain (`domain` or domain_train, domain_test, `domains`). Ids are
numbers or text. Mean and standard deviation are measured on the training part.

With a task (`--task regression`, or a text `task` in the file) y is what the task takes. x and y may be columns (x.NAME)
or sequences: all values in a row (x), where each begins (x.offsets: 0, …, total) and the value that pads (x.pad).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from undrift.core.errors import BadRequest
from undrift.data.cache import Arrays, cached
from undrift.data.dataset import DataSet, assembled, measured
from undrift.data.decode import whole_numbers
from undrift.data.folders import image_folder, layout
from undrift.data.readers import channels_first, npz

FEW_CLASSES = 1000  # so many may be without a sample
OWN = "the user's own"


def own_npz(path: Path, task: Any = None) -> DataSet:
    if not path.is_file():
        raise BadRequest(f"there is no file {path}; give the path of an .npz with x_train, y_train, x_test, y_test")
    if task is not None or "task" in npz(path):
        return npz_of_task(path, task)
    return assembled(path.stem, cached(path.stem, [path], partial(_npz_arrays, path)), OWN, str(path))


def npz_of_task(path: Path, task: Any) -> DataSet:
    """The samples of an .npz for a task other than classification."""
    from undrift import tasks
    from undrift.core import samples

    arrays = cached(path.stem, [path], partial(_with_split, path), "task")
    found = tasks.read(task if task is not None else str(arrays["task"].reshape(-1)[0]))
    parts = {name: samples.from_arrays(name, arrays) for name in ("x_train", "y_train", "x_test", "y_test")}
    for name in ("x_train", "y_train"):
        if parts[name] is None:
            raise BadRequest(f"{path} lacks the array {name}; it holds {', '.join(sorted(arrays)) or 'nothing'}")
    if (parts["x_test"] is None) != (parts["y_test"] is None):
        raise BadRequest(f"{path} has only one of x_test and y_test; give both or neither")
    if parts["x_test"] is None:
        parts |= {"x_test": parts["x_train"][:0], "y_test": parts["y_train"][:0]}
    x, y = parts["x_train"], samples.of(parts["y_train"])
    named = arrays["classes"].tolist() if "classes" in arrays else range(found.outputs or found.count(y))
    mean, std = moments_for(x, found)
    groups: dict[str, Any] = {
        key: value for kind in ("client", "domain") for key, value in _groups(kind, dict(arrays), path).items()
    }
    return DataSet(
        path.stem, **parts, classes=tuple(map(str, named)), mean=mean, std=std, licence=OWN, source=str(path),
        task=found, **with_names(groups),
    )  # fmt: skip


def moments_for(x: Any, task: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of tables and images; none of columns, sequences and token ids, which are used as they
    are."""
    used_as_is = not isinstance(x, np.ndarray) or (task.whole_inputs and x.dtype.kind in "iu") or x.ndim not in (2, 4)
    return ((), ()) if used_as_is else measured(x)


def with_names(groups: dict[str, Any]) -> dict[str, Any]:
    """The columns of clients and domains, with their names as a data set holds them."""
    return {
        key: tuple(map(str, value.tolist())) if key in ("clients", "domains") else value
        for key, value in groups.items()
    }


def _with_split(path: Path) -> Arrays:
    """The arrays of a file, where x and y alone are the training part."""
    split = {"x": "x_train", "y": "y_train"}
    renamed = {}
    for key, value in npz(path).items():
        first, dot, rest = key.partition(".")
        renamed[f"{split.get(first, first)}{dot}{rest}"] = value
    return renamed


def own_csv(path: Path, target: str | None, client: str | None, task: Any) -> DataSet:
    """A table whose columns of numbers are the inputs, but for the target and the client."""
    from undrift.data.csv_file import csv_columns
    from undrift.data.tables import table

    columns = csv_columns(path)
    if target is None:
        raise BadRequest(f"say which column of {path} is predicted: --target, one of {', '.join(columns)}")
    targets = target if target in columns else [name.strip() for name in target.split(",")]
    return table(columns, targets, client, name=str(path), task=task)


def own_folder(path: Path, size: int | None) -> DataSet:
    if not path.is_dir():
        raise BadRequest(f"there is no folder {path}; give one that holds train/CLASS/… and test/CLASS/…")
    rows = layout(path)
    arrays = cached(path.name, [row[0] for row in rows], partial(_folder_arrays, rows, size), f"size={size}")
    return assembled(path.name, arrays, OWN, str(path))


def with_moments(arrays: Arrays) -> Arrays:
    """The arrays with the measured mean and standard deviation, so that the cache stores these too."""
    mean, std = measured(arrays["x_train"])
    return arrays | {"mean": np.array(mean), "std": np.array(std)}


def _folder_arrays(rows: list[tuple[Path, str, str, str]], size: int | None) -> Arrays:
    return with_moments(image_folder(rows, size))


def _npz_arrays(path: Path) -> Arrays:
    found = {{"x": "x_train", "y": "y_train"}.get(key, key): value for key, value in npz(path).items()}
    for name in ("x_train", "y_train"):
        if name not in found:
            raise BadRequest(f"{path} lacks the array {name}; it holds {', '.join(sorted(found)) or 'nothing'}")
    if ("x_test" in found) != ("y_test" in found):
        raise BadRequest(f"{path} has only one of x_test and y_test; give both or neither")
    arrays = {
        "x_train": _numbers(found["x_train"], path),
        "y_train": whole_numbers(found["y_train"], "y_train", str(path)),
    }
    if not len(arrays["x_train"]):
        raise BadRequest(f"{path} has no training samples; give at least one sample")
    has_test = "x_test" in found
    arrays["x_test"] = _numbers(found["x_test"], path) if has_test else arrays["x_train"][:0]
    arrays["y_test"] = whole_numbers(found["y_test"], "y_test", str(path)) if has_test else arrays["y_train"][:0]
    classes = max(int(y.max(initial=-1)) for y in (arrays["y_train"], arrays["y_test"])) + 1
    samples = len(arrays["y_train"]) + len(arrays["y_test"])
    if "classes" not in found and classes > max(samples, FEW_CLASSES):
        raise BadRequest(
            f"{path} has the label {classes - 1:,} and only {samples:,} samples; number the classes 0, 1, 2, …, or name them "
            "all in `classes`"
        )
    arrays["classes"] = found["classes"] if "classes" in found else np.array([str(c) for c in range(classes)])
    for kind in ("client", "domain"):
        arrays |= _groups(kind, found, path)
    return with_moments(arrays)


def _numbers(x: np.ndarray, path: Path) -> np.ndarray:
    if x.dtype.kind not in "fiub" or x.ndim < 2:
        raise BadRequest(f"{path} must hold samples as numbers (N, …), not {x.dtype} of shape {x.shape}")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which `DataSet` refuses
        return channels_first(x if x.dtype == np.uint8 else x.astype(np.float32))


def _groups(kind: str, found: Arrays, path: Path) -> Arrays:
    """A client or domain column as indices, and their names."""
    train = found.get(f"{kind}_train", found.get(kind))
    if train is None:
        return {}
    test = found.get(f"{kind}_test")
    if f"{kind}s" in found and train.dtype.kind in "iu":
        numbered = {f"{kind}s": found[f"{kind}s"], f"{kind}_train": train.astype(np.int64)}
        return numbered | ({f"{kind}_test": test.astype(np.int64)} if test is not None else {})
    known, numbers = np.unique(train, return_inverse=True)
    arrays = {f"{kind}s": known, f"{kind}_train": numbers.astype(np.int64)}
    if test is not None:
        unknown_ids = np.setdiff1d(test, known)
        if len(unknown_ids):
            raise BadRequest(f"{path} has test samples of the {kind} {unknown_ids[0]!s}, which has no training samples")
        arrays[f"{kind}_test"] = np.searchsorted(known, test).astype(np.int64)
    return arrays
