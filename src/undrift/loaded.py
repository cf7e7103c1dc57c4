"""A federation from a function client → data, which is called where the client runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from undrift.elsewhere import Elsewhere, Four
from undrift.errors import BadRequest
from undrift.federation import Federation, rows_of
from undrift.own import four
from undrift.streams import numpy_stream


@dataclass(frozen=True)
class Loader:
    """(x, y, x_test, y_test) of a client as the user's function gives it, checked where the client runs."""

    function: Callable[[int], Any]
    sizes: np.ndarray
    shape: tuple[int, ...]
    classes: int
    test_share: float
    seed: int

    def __call__(self, client: int) -> Four:
        x, y, x_test, y_test = four(self.function(client), client)
        if len(y) != self.sizes[client]:
            raise BadRequest(f"client {client} was said to have {self.sizes[client]} samples and has {len(y)}")
        if x_test is None or y_test is None:
            order = torch.from_numpy(numpy_stream(self.seed, "test share", client).permutation(len(y)))
            held = min(round(self.test_share * len(y)), len(y) - 1)
            x, y, x_test, y_test = x[order[held:]], y[order[held:]], x[order[:held]], y[order[:held]]
        elif self.test_share:
            raise BadRequest(
                f"client {client} has a test part of its own; say test_share=0, so that all of the rest is trained on"
            )
        x, x_test = rows_of(x), rows_of(x_test)
        if x.shape[1:] != self.shape:
            raise BadRequest(f"client {client} has samples of shape {tuple(x.shape[1:])}, the test set of {self.shape}")
        lowest, highest = (int(value) for value in y.aminmax())
        if lowest < 0 or highest >= self.classes:
            raise BadRequest(f"labels must lie in 0…{self.classes - 1}; client {client} has {lowest} to {highest}")
        if not torch.isfinite(x).all():
            raise BadRequest(f"client {client} has inputs that are NaN or infinite; remove or fill them")
        return x, y, x_test, y_test


def from_function(
    function: Callable[[int], Any], sizes: Sequence[int] | np.ndarray, test: Any, name: str, test_share: float,
    labels: Sequence[str] | None, seed: int,
) -> Federation:  # fmt: skip
    sizes = np.asarray(sizes)
    if sizes.ndim != 1 or not len(sizes) or sizes.dtype.kind not in "iu" or sizes.min() < 1:
        raise BadRequest("sizes are whole numbers of at least 1, one per client")
    x, y = (torch.as_tensor(value) for value in test)
    x, y = rows_of(x.float()), y.long()
    classes = len(labels) if labels else int(y.max()) + 1
    names = list(labels or (str(c) for c in range(classes)))
    loader = Loader(function, sizes, tuple(x.shape[1:]), classes, test_share, seed)
    # The network is tried on samples of the server's test set: no client's data pass through here.
    trained = sizes - np.minimum(np.rint(test_share * sizes), sizes - 1).astype(np.int64)
    said = {"test_share": test_share} if test_share else {}
    return Federation(name, (x, y), (x, y), Elsewhere(loader, trained), names, seed=seed, record=said)
