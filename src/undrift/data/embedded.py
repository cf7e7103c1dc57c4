"""The tables inside scikit-learn: diabetes (regression), breast-cancer and wine (classification).

A fifth of the rows is the test part, stratified by class where there are classes, drawn from numpy's legacy stream, whose
numbers do not change between versions.
"""

from __future__ import annotations

import numpy as np

from undrift.data.cache import Arrays
from undrift.data.decode import largest

TEST_SHARE = 0.2
LOADERS = {"diabetes": "load_diabetes", "breast-cancer": "load_breast_cancer", "wine": "load_wine"}


def embedded(name: str) -> Arrays:
    """The table with its split. Diabetes has its columns in their own units (years, mmHg, mg/dl)."""
    from sklearn import datasets

    options = {"scaled": False} if name == "diabetes" else {}
    bunch = getattr(datasets, LOADERS[name])(**options)
    regression = not hasattr(bunch, "target_names")
    y = bunch.target.astype(np.float32 if regression else np.int64)
    test = split(np.zeros(len(y), dtype=np.int64) if regression else y)
    x = bunch.data.astype(np.float32)
    classes = ["progression"] if regression else list(bunch.target_names)
    return {
        "x_train": x[~test], "y_train": y[~test], "x_test": x[test], "y_test": y[test], "classes": np.array(classes),
    }  # fmt: skip


def split(strata: np.ndarray) -> np.ndarray:
    """Which rows are test rows: the same share of every stratum."""
    draw, sizes = np.random.RandomState(0), np.bincount(strata)
    total = round(TEST_SHARE * len(strata))
    test = np.zeros(len(strata), dtype=bool)
    for stratum, count in enumerate(largest(sizes * (total / len(strata)), total)):
        test[draw.permutation(np.flatnonzero(strata == stratum))[:count]] = True
    return test
