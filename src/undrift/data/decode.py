"""Decoders of the known data sets: one small function per file family, from paths to arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from undrift.core.errors import LABELS, BadRequest
from undrift.data.cache import Arrays
from undrift.data.readers import channels_first, cifar, idx_pair, npz, svhn_mat

DIGITS = tuple("0123456789")


def idx_set(paths: list[Path]) -> Arrays:
    """Four idx files: training images and labels, test images and labels."""
    x_train, y_train = idx_pair(paths[0], paths[1])
    x_test, y_test = idx_pair(paths[2], paths[3])
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def emnist_set(paths: list[Path]) -> Arrays:
    """EMNIST's idx images are stored transposed, so rows and columns are swapped."""
    arrays = idx_set(paths)
    return arrays | {name: arrays[name].swapaxes(2, 3) for name in ("x_train", "x_test")}


def letters_set(paths: list[Path]) -> Arrays:
    """EMNIST labels letters 1…26. Here labels start at 0."""
    arrays = emnist_set(paths)
    return arrays | {name: arrays[name] - 1 for name in ("y_train", "y_test")}


def letters10_set(paths: list[Path]) -> Arrays:
    """The first ten letters, which the FedDyn and the bound weighting papers call EMNIST."""
    arrays = letters_set(paths)
    return {name: array[arrays[f"y_{name[2:]}"] < 10] for name, array in arrays.items()}


def cifar10_set(paths: list[Path]) -> Arrays:
    x_train, y_train = cifar(paths[:5])
    x_test, y_test = cifar(paths[5:])
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def cifar100_set(paths: list[Path]) -> Arrays:
    x_train, y_train = cifar(paths[:1], label_bytes=2)
    x_test, y_test = cifar(paths[1:2], label_bytes=2)
    arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    fine = paths[0].parent / "fine_label_names.txt"
    if fine.is_file():
        arrays["classes"] = np.array(fine.read_text().split())
    return arrays


def svhn_set(paths: list[Path]) -> Arrays:
    x_train, y_train = svhn_mat(paths[0])
    x_test, y_test = svhn_mat(paths[1])
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def npz_set(paths: list[Path]) -> Arrays:
    """A plain .npz of images with class names, and domain columns if there are domains."""
    found = npz(paths[0])
    for name in ("x_train", "y_train", "x_test", "y_test"):
        if name not in found:
            raise BadRequest(f"{paths[0]} lacks the array {name}; write it again with np.savez")
    arrays = {name: channels_first(found[name]) for name in ("x_train", "x_test")}
    for name in ("y_train", "y_test", "domain_train", "domain_test"):
        if name in found:
            arrays[name] = whole_numbers(found[name], name, str(paths[0]))
    return arrays | {name: found[name] for name in ("classes", "domains") if name in found}


MOST_FLOATS = 50  # classes that are given as floats


def whole_numbers(values: np.ndarray, name: str, where: str) -> np.ndarray:
    """Labels as int64, one per sample. Floats are accepted only if each is a whole number, since 1.5 is no class, and if
    there are few: the whole-valued floats of a measurement would become hundreds of classes."""
    values = values.reshape(-1) if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1:
        raise BadRequest(f"{name} of {where} has the shape {values.shape}; {LABELS}")
    whole = values.dtype.kind in "iub" or (values.dtype.kind == "f" and bool((values == np.floor(values)).all()))
    if not whole:
        raise BadRequest(
            f"{name} of {where} must hold integers, not {values.dtype} values; number the classes 0, 1, 2, … ({LABELS})"
        )
    if values.dtype.kind == "f" and (many := len(np.unique(values))) > MOST_FLOATS:
        raise BadRequest(
            f"{name} of {where} has {many} different values of type {values.dtype}, which look like measurements; {LABELS}; "
            "if they are classes, give them as integers"
        )
    return values.astype(np.int64)


def digits_set() -> Arrays:
    """scikit-learn's 8×8 digits with a fixed split into 1437 + 360, stratified by class.

    The grey levels 0…16 are stored as 0…240 (times 15, so nothing is rounded), as uint8 like all images. The split is
    drawn from numpy's legacy stream, whose numbers do not change between versions.
    """
    x, y = _digits_file() or _digits_import()
    draw = np.random.RandomState(0)
    per_class = np.bincount(y)
    test_share = largest(per_class * (360 / len(y)), 360)
    test = np.zeros(len(y), dtype=bool)
    for c, count in enumerate(test_share):
        test[draw.permutation(np.flatnonzero(y == c))[:count]] = True
    images = (x * 15).astype(np.uint8).reshape(-1, 1, 8, 8)
    return {"x_train": images[~test], "y_train": y[~test], "x_test": images[test], "y_test": y[test]}


def largest(exact: np.ndarray, total: int) -> np.ndarray:
    """Whole numbers that sum to `total`: floors, then one more for the largest fractions."""
    counts: np.ndarray = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return counts


def _digits_file() -> tuple[np.ndarray, np.ndarray] | None:
    """The table inside scikit-learn, read without importing scikit-learn, which takes most of a second."""
    import gzip
    import importlib.util

    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not path.is_file():
        return None
    table = np.array([line.split(b",") for line in gzip.decompress(path.read_bytes()).split()], dtype=np.float32)
    return table[:, :-1], table[:, -1].astype(np.int64)


def _digits_import() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.data.astype(np.float32), digits.target.astype(np.int64)
