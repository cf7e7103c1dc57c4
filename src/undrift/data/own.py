"""The user's own data: an .npz, or a folder of images.

An .npz holds x_train and y_train (or x and y), and may hold x_test and y_test, `classes`, a client id per training
sample (`client` or client_train, client_test) and a domain (`domain` or domain_train, domain_test, `domains`). Ids are
numbers or text. Mean and standard deviation are measured on the training part.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from undrift.core.errors import BadRequest
from undrift.data.cache import Arrays, cached
from undrift.data.dataset import DataSet, assembled, measured
from undrift.data.decode import whole_numbers
from undrift.data.folders import image_folder, layout
from undrift.data.readers import channels_first, npz

FEW_CLASSES = 1000  # so many may be without a sample
OWN = "the user's own"


def own_npz(path: Path) -> DataSet:
    if not path.is_file():
        raise BadRequest(f"there is no file {path}; give the path of an .npz with x_train, y_train, x_test, y_test")
    return assembled(path.stem, cached(path.stem, [path], partial(_npz_arrays, path)), OWN, str(path))


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
