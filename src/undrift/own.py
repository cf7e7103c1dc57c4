"""A federation from the user's own clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from undrift.elsewhere import Elsewhere, Four
from undrift.errors import BadRequest
from undrift.federation import Federation, rows_of
from undrift.streams import numpy_stream


def from_clients(
    clients: Sequence[Any], name: str, test_share: float, labels: Sequence[str] | None, seed: int, validation: float
) -> Federation:
    xs, ys, test_xs, test_ys = (list[torch.Tensor]() for _ in range(4))
    parts, slices = list[np.ndarray](), list[np.ndarray]()
    at = test_at = 0
    said: dict[str, Any] = {}
    for client, given in enumerate(clients):
        x, y, x_test, y_test = four(given, client)
        if x_test is None or y_test is None:
            x, y, x_test, y_test = divided(x, y, test_share, seed, client)
            said["test_share"] = test_share
        if xs and x.shape[1:] != xs[0].shape[1:]:
            raise BadRequest(
                f"client {client} has samples of shape {tuple(x.shape[1:])}, client 0 of {tuple(xs[0].shape[1:])}; bring them to one"
            )
        if not len(y):
            raise BadRequest(f"client {client} has no sample; leave it out")
        parts.append(np.arange(at, at + len(y)))
        slices.append(np.arange(test_at, test_at + len(y_test)))
        at, test_at = at + len(y), test_at + len(y_test)
        for whole, piece in zip((xs, ys, test_xs, test_ys), (x, y, x_test, y_test)):
            whole.append(piece)
    if not xs:
        raise BadRequest("a federation needs at least one client")
    y, test_y = torch.cat(ys), torch.cat(test_ys)
    lowest, highest = (int(value) for value in torch.cat([y, test_y]).aminmax())
    classes = len(labels) if labels else highest + 1
    if lowest < 0 or highest >= classes:
        raise BadRequest(f"labels must lie in 0…{classes - 1}; found {lowest} to {highest}")
    x, test_x = rows_of(torch.cat(xs)), rows_of(torch.cat(test_xs))
    if not torch.isfinite(x).all() or not torch.isfinite(test_x).all():
        raise BadRequest("the clients' inputs hold NaN or infinite values; remove or fill them")
    names = list(labels or (str(c) for c in range(classes)))
    return Federation(name, (x, y), (test_x, test_y), parts, names, slices, seed, validation, record=said)


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
            x, y, x_test, y_test = divided(x, y, self.test_share, self.seed, client)
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


def divided(x: torch.Tensor, y: torch.Tensor, test_share: float, seed: int, client: int) -> Four:
    """A client's data without a test part of its own: `test_share` of them become one."""
    order = torch.from_numpy(numpy_stream(seed, "test share", client).permutation(len(y)))
    held = min(round(test_share * len(y)), len(y) - 1)
    return x[order[held:]], y[order[held:]], x[order[:held]], y[order[:held]]


def four(given: Any, client: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """(x, y, x_test, y_test) of whatever the user gave for one client."""
    if isinstance(given, (tuple, list)) and len(given) in (2, 4) and not isinstance(given[0], (tuple, list)):
        values = [torch.as_tensor(value) for value in given] + [None] * (4 - len(given))
    else:
        pairs = [given[i] for i in range(len(given))]
        values = [
            torch.stack([torch.as_tensor(x) for x, _ in pairs]),
            torch.tensor([int(y) for _, y in pairs]),
            None,
            None,
        ]
    for at in (1, 3):
        y = values[at]
        if y is not None and (y.dim() != 1 or y.is_floating_point()):
            raise BadRequest(
                f"client {client} has labels of type {str(y.dtype).removeprefix('torch.')}; number the classes 0, 1, 2, …"
            )
    x, y, x_test, y_test = values
    assert x is not None
    assert y is not None
    if len(x) != len(y):
        raise BadRequest(f"client {client} has {len(x)} samples but {len(y)} labels")
    return x.float(), y.long(), None if x_test is None else x_test.float(), None if y_test is None else y_test.long()
