"""A test part for data without one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from undrift.core.errors import BadRequest
from undrift.core.streams import numpy_stream
from undrift.data.dataset import DataSet


def with_test_part(data: DataSet, share: float, seed: int) -> DataSet:
    """The data with `share` of every client's samples held out for testing. If no clients are named: of every domain's,
    or of every class's."""
    if not 0 < share < 1:
        raise BadRequest(f"test_share is a share of the samples, 0 < test_share < 1, not {share}")
    groups = data.client_train if data.client_train is not None else data.domain_train
    if groups is None:
        groups = data.y_train if data.task is None else np.zeros(len(data.y_train), dtype=np.int64)
    test = np.zeros(len(groups), dtype=bool)
    for group in np.unique(groups):
        rows = numpy_stream(seed, "test share", int(group)).permutation(np.flatnonzero(groups == group))
        test[rows[: min(round(share * len(rows)), len(rows) - 1)]] = True
    if not test.any():
        raise BadRequest(
            f"{data.name} has no test part and too few samples ({len(test)}) to hold {share:.0%} out; give a test part"
        )

    def cut(column: np.ndarray | None, chosen: np.ndarray) -> np.ndarray | None:
        return None if column is None else column[chosen]

    return replace(
        data,
        x_train=data.x_train[~test],
        y_train=data.y_train[~test],
        x_test=data.x_train[test],
        y_test=data.y_train[test],
        client_train=cut(data.client_train, ~test),
        client_test=cut(data.client_train, test),
        domain_train=cut(data.domain_train, ~test),
        domain_test=cut(data.domain_train, test),
    )
